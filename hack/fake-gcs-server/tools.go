//go:build tools

// Package tools keeps in go.mod what hack/fake-gcs-server/build builds but no Go file here imports.
package tools

import _ "github.com/fsouza/fake-gcs-server"
