# The two commands are `make demo` and `make test`; each installs what it needs.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Warnings are errors here, not in the source.
STRICT := -D warnings

.PHONY: help demo test bench fmt lint generated docs unit assets deny

help: ## What can be made
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-10s %s\n", $$1, $$2 }'

demo: assets ## See it work, on a real API server and a stand-in for AWS (KEEP=1 leaves it running)
	cargo build --release --package tidewaiter
	cargo run --quiet --package tidewaiter --example demo -- $(if $(KEEP),--keep)

test: fmt lint generated docs unit ## Everything that CI runs

bench: assets ## Speed and size, as ratios in one run
	cargo build --release --package tidewaiter
	cargo bench --package tidewaiter

fmt:
	cargo fmt --all --check

lint:
	cargo clippy --workspace --all-targets -- $(STRICT)

generated:
	cargo xtask generate --check

docs:
	cargo doc --workspace --no-deps

unit: assets
	cargo test --workspace

assets: ## etcd, the Kubernetes control plane and moto, built once into the cache
	hack/kube-assets/build
	hack/moto

deny: ## Licences, sources and duplicates of dependencies (installs cargo-deny)
	command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
	cargo deny check bans licenses sources
