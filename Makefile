# Everything is started from here; `make help` lists the targets. Only `setup` may ask for root, for Debian packages.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
STATIC := x86_64-unknown-linux-gnu
CACHE := .cache

AGENT := $(TARGET)/$(STATIC)/agent/metamorph-agent
AGENT_IMAGE := $(CACHE)/agent-image
DEMO_OS := $(CACHE)/demo-os

# Where tests, benches and the demo find what is built beside them.
export METAMORPH_AGENT := $(abspath $(AGENT))
export METAMORPH_AGENT_IMAGE := $(abspath $(AGENT_IMAGE))
export METAMORPH_DEMO_OS := $(abspath $(DEMO_OS))/current

# The server's program as the recipes below start it: what the asked target has built already, else built now.
METAMORPH := $(CARGO) run --quiet --package metamorph --
demo bench: METAMORPH := $(TARGET)/release/metamorph
test: METAMORPH := $(TARGET)/debug/metamorph

# What tests/kubernetes/build can build.
KUBERNETES := etcd kube-apiserver kube-controller-manager kubectl e2e.test

# The suite of tests/conformance, as `binaries` built it.
CONFORMANCE := $(TARGET)/debug/conformance

# cargo uses all cores by itself, and prerequisites are meant in the order they are written.
.NOTPARALLEL:

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

.PHONY: demo
demo: setup release agent-image demo-os ## from nothing to a provisioned virtual server; Ctrl-C ends it
	$(METAMORPH) demo $(DEMO_ARGS)

.PHONY: test
test: setup lint binaries generated agent-image demo-os ## all checks and all tests, as continuous integration runs them
	$(CARGO) test --workspace --no-fail-fast
	tests/kubernetes/build definitions
	$(CONFORMANCE) embedded

.PHONY: test-kubernetes
test-kubernetes: setup binaries ## the embedded Kubernetes API against a real kube-apiserver, case by case
	METAMORPH_KUBERNETES_BIN="$$(tests/kubernetes/build)" $(CONFORMANCE) both
	$(CONFORMANCE) defects

.PHONY: test-kubernetes-e2e
test-kubernetes-e2e: setup binaries ## Kubernetes' own end-to-end suite, as far as it is about the API, on both
	METAMORPH_KUBERNETES_BIN="$$(tests/kubernetes/build $(KUBERNETES))" $(CONFORMANCE) suite

.PHONY: kubernetes
kubernetes: ## builds that real control plane and its suite from their Go modules, once
	tests/kubernetes/build $(KUBERNETES)

.PHONY: bench
bench: setup release agent-image demo-os ## the table of measured figures; fails beyond a limit
	METAMORPH_BENCH_DEMO=1 $(CARGO) bench --package e2e

.PHONY: lint
lint: ## layout, budgets, formatting, compiler and clippy warnings
	$(CARGO) xtask tidy
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

.PHONY: generated
generated: ## fails if docs/generated differs from the code
	$(CARGO) xtask generate --check

.PHONY: generate
generate: ## writes docs/generated anew
	$(CARGO) xtask generate

.PHONY: setup
setup: ## installs missing Debian packages (deploy/packages.txt); the only target that may ask for root
	@deploy/setup

.PHONY: binaries
binaries: ## programs and tests, unoptimised
	$(CARGO) build --workspace --all-targets

.PHONY: release
release: agent ## the programs, optimised
	$(CARGO) build --release --package metamorph --package bmc-sim

.PHONY: agent
agent: $(AGENT) ## the agent as one static program

.PHONY: agent-image
agent-image: $(AGENT_IMAGE)/manifest.json ## kernel, ramdisk and boot loader that servers boot over virtual media

.PHONY: demo-os
demo-os: ## the Debian disk image that the demo provisions
	@deploy/demo-os/build --out $(DEMO_OS)

.PHONY: demo-os-check
demo-os-check: ## boots that image alone, without and with Secure Boot, and looks at its first boot
	deploy/demo-os/boot-check
	deploy/demo-os/boot-check --secure-boot

# cargo knows whether there is something to do; if there is not, the file stays as old as it was.
.PHONY: FORCE
FORCE:

$(AGENT): FORCE
	RUSTFLAGS='-C target-feature=+crt-static' $(CARGO) build --profile agent --package metamorph-agent --target $(STATIC)

$(AGENT_IMAGE)/manifest.json: $(AGENT)
	$(METAMORPH) agent-image build --agent $(AGENT) --out $(AGENT_IMAGE)
	@touch $@

.PHONY: clean
clean: ## removes what was built, downloads and images included
	rm -rf $(CACHE)/agent-image $(CACHE)/demo-os
	$(CARGO) clean
