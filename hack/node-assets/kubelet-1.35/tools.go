//go:build tools

// Package tools keeps in go.mod what hack/node-assets/build builds but no Go file here imports.
package tools

import _ "k8s.io/kubernetes/cmd/kubelet"
