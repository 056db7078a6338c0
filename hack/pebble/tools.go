//go:build tools

// Package tools keeps in go.mod what hack/pebble/build builds but no Go file here imports.
package tools

import (
	_ "github.com/letsencrypt/pebble/v2/cmd/pebble"
	_ "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv"
)
