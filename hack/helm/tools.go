//go:build tools

// Package tools keeps in go.mod what hack/helm/build builds but no Go file here imports.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
