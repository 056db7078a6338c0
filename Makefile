# The two commands are `make demo` and `make test`; each installs what it needs.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION = $(shell sed -n '/^\[workspace.package\]$$/,/^$$/s/^version = "\(.*\)"$$/\1/p' Cargo.toml)

# Warnings are errors here, not in the source.
STRICT := -D warnings

.PHONY: help demo demo-assets demo-binaries test thorough bench fmt lint docs rustdoc compile unit nodes assets node-assets deny image release release-binaries

help: ## What can be made
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-10s %s\n", $$1, $$2 }'

# What real nodes run, and what makes the image that they run. The demo says what is missing, and goes on without nodes.
NODE_ASSETS := hack/image/tools && hack/node-assets/build >/dev/null

# The assets are built beside what cargo compiles: each uses the core that the other one leaves idle.
demo: ## See it work, on a real API server and a stand-in for AWS (KEEP=1 leaves it running, AUDIT=file lists the writes; NODES=2: on real nodes, NODES=3: upgrades them)
	@echo "demo 1 of 2: compiles Tidewaiter, and once etcd and Kubernetes; the first time up to half an hour on two cores, later seconds"
	$(MAKE) --jobs 2 --no-print-directory demo-assets demo-binaries
	@echo "demo 2 of 2: tells the story: $(if $(NODES),some minutes on real nodes,about a minute)"
	target/debug/examples/demo $(if $(NODES),--nodes $(NODES)) $(if $(KEEP),--keep) $(if $(AUDIT),--audit $(AUDIT))

demo-assets:
	hack/kube-assets/build
	hack/moto
	$(if $(NODES),hack/helm/build)
	$(if $(NODES),$(NODE_ASSETS) || true)

# Of the whole workspace, so that cargo resolves the same features as for the tests, and `make test` builds none of it again.
demo-binaries:
	cargo build --workspace --bins --example demo

test: ## Everything that CI runs
	$(MAKE) --jobs 2 --no-print-directory node-assets fmt lint compile
	$(MAKE) --no-print-directory unit

thorough: export TIDEWAITER_THOROUGH := 1
thorough: rustdoc unit ## The links of the documentation comments, and the tests, with every death and every wrong list of which `make test` tries some

bench: assets ## Speed and size, as ratios in one run
	cargo bench --package tidewaiter --bench performance

fmt:
	cargo fmt --all --check

lint:
	cargo clippy --workspace --all-targets -- $(STRICT)

# mdbook only warns of what it cannot render, and checks no links: a test does.
docs: ## The pages of docs/ as a site with search, in target/book (installs mdbook)
	command -v mdbook >/dev/null || cargo install --locked mdbook --version 0.5.2
	cargo test --workspace --test links
	MDBOOK_BOOK__TITLE="Tidewaiter $(VERSION)" mdbook build 2>&1 | { ! grep -E 'WARN|ERROR'; }

# With the example, cargo resolves the same features as clippy does, and builds no dependency again.
rustdoc:
	RUSTDOCFLAGS="$(STRICT)" cargo doc --workspace --no-deps --document-private-items --lib --bins --examples

# A test of xtask itself has cargo build xtask with the features of the whole workspace: `cargo xtask` would build its dependencies again.
compile:
	cargo test --workspace --no-run

unit: node-assets compile
	target/debug/xtask test --except nodes
	if target/debug/can-run-nodes; then hack/node-tests; else echo "The tests on real nodes did not run."; fi

nodes: assets ## The tests on real nodes alone (root, cgroups of version 1; builds kubelet and containerd once)
	$(NODE_ASSETS)
	cargo test --workspace --no-run
	hack/node-tests

assets: ## etcd, the Kubernetes control plane, Helm, moto, fake-gcs-server, pebble, Prometheus, PostgreSQL, nginx, Schemathesis, Chromium, axe-core, zsh, fish, oidc-provider and the YAML reader of kubectl, put once into the cache
	hack/kube-assets/build
	hack/helm/build
	hack/moto
	hack/fake-gcs-server/build
	hack/pebble/build
	hack/prometheus
	hack/postgresql
	hack/nginx
	hack/schemathesis
	hack/chromium
	hack/shells
	hack/axe/build
	hack/oidc-provider/build
	hack/yaml-oracle/build

node-assets: assets
	hack/image/tools
	if ((EUID == 0)); then hack/node-assets/build >/dev/null; fi

deny: ## Licences, sources and duplicates of dependencies (installs cargo-deny)
	command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
	cargo deny check bans licenses sources

# As in the Containerfile: with the example, cargo would enable more features of the dependencies.
image: ## The image with its digest, SBOM and licences, in dist/ (BINARY=file packs that binary; installs cargo-cyclonedx and cargo-about)
	hack/image/tools
	command -v cargo-cyclonedx >/dev/null || cargo install --locked cargo-cyclonedx
	command -v cargo-about >/dev/null || cargo install --locked --features cli cargo-about
	$(if $(BINARY),,cargo build --locked --release --package tidewaiter)
	image=$$(hack/image/build $(BINARY)) && hack/image/bill "$$image"

release: ## All files of a release, for x86-64 and aarch64, in dist/ (BINARY="files" packs these; MINISIGN_KEY=file signs the checksums)
	rm -rf dist
	$(if $(BINARY),,$(MAKE) --no-print-directory release-binaries)
	hack/release $(or $(BINARY),target/release/tidewaiter target/aarch64-unknown-linux-gnu/release/tidewaiter) dist

# The unit tests of the one for aarch64 run in qemu.
release-binaries:
	hack/aarch64/tools
	cargo build --locked --release --package tidewaiter
	hack/aarch64/cargo build --locked --release --package tidewaiter
	hack/aarch64/cargo test --locked --workspace --exclude tidewaiter-testkit --exclude xtask --lib --bins
