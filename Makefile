# Everything is started from here; `make help` lists the targets. Only `setup` may ask for root, for Debian packages.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
STATIC := x86_64-unknown-linux-gnu
CACHE := .cache

# The agent as servers get it, and as tests do: the same program, compiled in a tenth of the time.
AGENT := $(TARGET)/$(STATIC)/agent/metamorph-agent
TEST_AGENT := $(TARGET)/debug/metamorph-agent
AGENT_IMAGE := $(CACHE)/agent-image
TEST_AGENT_IMAGE := $(CACHE)/agent-image-test
# The same for machines with Arm processors, by a cross compiler whose results are kept apart: it may be another version.
CROSS := $(TARGET)/aarch64
AARCH64_AGENT := $(CROSS)/aarch64-unknown-linux-gnu/agent/metamorph-agent
AARCH64_TEST_AGENT := $(CROSS)/aarch64-unknown-linux-gnu/emulated/metamorph-agent
AARCH64_AGENT_IMAGE := $(CACHE)/agent-image-aarch64
AARCH64_TEST_AGENT_IMAGE := $(CACHE)/agent-image-aarch64-test
IPA_IMAGE := $(CACHE)/agent-image-ipa
# The same with a hardware manager of the tests' own.
TEST_IPA_FILES := tests/ironic/ramdisk
TEST_IPA_IMAGE := $(CACHE)/agent-image-ipa-test
DEMO_OS := $(CACHE)/demo-os

# Where tests, benches and the demo find what is built beside them.
export METAMORPH_AGENT := $(abspath $(AGENT))
export METAMORPH_AGENT_IMAGE := $(abspath $(TEST_AGENT_IMAGE))
export METAMORPH_AGENT_IMAGE_AARCH64 := $(abspath $(AARCH64_TEST_AGENT_IMAGE))
export METAMORPH_AGENT_IMAGE_IPA := $(abspath $(IPA_IMAGE))
export METAMORPH_DEMO_OS := $(abspath $(DEMO_OS))/current
demo bench test-shipped: export METAMORPH_AGENT_IMAGE := $(abspath $(AGENT_IMAGE))
test-ironic: export METAMORPH_AGENT_IMAGE_IPA := $(abspath $(TEST_IPA_IMAGE))
test-shipped: export METAMORPH_AGENT_IMAGE_AARCH64 := $(abspath $(AARCH64_AGENT_IMAGE))

# One selection of packages for all builds: with another one, dependencies would have other features and be compiled again. What
# tests use is compiled by way of .cargo/rustc, which lints it, and without the allocator that programs are shipped with, which takes a minute to build.
TESTED := --workspace --no-default-features
CHECKED := RUSTC_WORKSPACE_WRAPPER=$(abspath .cargo/rustc) CLIPPY_ARGS=-Dwarnings
DEBUG := $(TARGET)/debug
XTASK := $(CHECKED) $(DEBUG)/xtask
METAMORPH := $(TARGET)/release/metamorph

# CONFINE=1 runs what tests start where only the packages of deploy/packages.txt and the toolchains are to be had. Needs root.
CONFINED := $(if $(CONFINE),$(DEBUG)/xtask confine --)
NEXTEST := $(CHECKED) $(CONFINED) $(CACHE)/tools/bin/cargo-nextest nextest run $(TESTED) --cargo-quiet
CONFORMANCE := $(CONFINED) $(DEBUG)/conformance

# Tests of real block devices and of real network cables take root, for their loop devices and namespaces.
AS_ROOT := $(if $(filter 0,$(shell id -u)),--run-ignored all)

# Debian keeps its tools for disks where an ordinary user's PATH has none.
export PATH := $(PATH):/usr/sbin:/sbin

# What takes minutes of both cores, and has its turn; SHARDS=all has all of it.
left-out = [ "$$(deploy/turn $(1) $(SHARDS))" = no ]
# Emulated machines, by the parts' names, and how the tests' names begin.
MACHINES := erasing=an_nvme_drive secure-boot=two_machines aarch64=an_aarch64_machine discovery=a_machine_that_nobody discovery=medium::

# The kit on a real Ironic, and lives of emulated machines under one and with ironic-python-agent, in the same way.
IRONICS := kit=real::the_kit own-life=ironic::a_machine_lives_its_life_under_ironic_by_our ipa-life=ironic::a_machine_lives_its_life_under_ironic_by_ironic native-ipa=ironic::native::

# What tests/kubernetes/build can build.
KUBERNETES := etcd kube-apiserver kube-controller-manager kubectl e2e.test

# cargo uses all cores by itself, and prerequisites are meant in the order they are written.
.NOTPARALLEL:

# Two commands that take a core each, at once; fails if one does. A shell that nobody types into starts the first one deaf to Ctrl-C.
both = failed=; env --default-signal=INT $(1) & $(2) || failed=1; wait $$! || failed=1; [ ! $$failed ]

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 26

.PHONY: demo
demo: setup release agent-image demo-os ## from nothing to a provisioned virtual server; Ctrl-C ends it
	$(METAMORPH) demo $(DEMO_ARGS)

.PHONY: check
check: setup lint ## what a change is checked with while it is made: lints, and tests in process
	$(NEXTEST) --profile check

.PHONY: test
test: setup lint ## lints, all tests in process, trips of the programs, one of QEMU
	$(call both,$(MAKE) --no-print-directory demo-os,$(MAKE) --no-print-directory generated test-agent-image)
	$(NEXTEST) --profile default
	$(CHECKED) $(CARGO) test $(TESTED) --doc --quiet
	tests/kubernetes/build definitions
	$(CONFORMANCE) embedded

.PHONY: test-system
test-system: setup binaries test-agent-image demo-os ## the programs killed, among hostile peers, and all of QEMU; SHARDS=all for all of it
	$(call left-out,aarch64) || $(MAKE) --no-print-directory test-agent-image-aarch64
	tests/kubernetes/clients/build python
	tests/redfish/validator/build
	left='none()'; for part in $(MACHINES); do if $(call left-out,$${part%=*}); then left="$$left | test(/^qemu::$${part#*=}/)"; fi; done; \
	shard=$$(deploy/shard $(SHARDS)) && METAMORPH_SHARD=$$shard SCENARIO_MOMENTS=$$shard $(NEXTEST) --profile system $(AS_ROOT) -E "not (binary_id(e2e::it) & ($$left))"

.PHONY: test-clock
test-clock: setup binaries test-agent-image ## tests in process at another time, in another zone and locale; CLOCK=all for all of them
	$(CHECKED) deploy/clock $(or $(CLOCK),one)

.PHONY: test-shipped
test-shipped: setup binaries release agent-image agent-image-aarch64 demo-os ## the QEMU trip with the agent as it is shipped
	$(NEXTEST) --ignore-default-filter -E 'binary_id(e2e::it) & test(/^qemu::/)'

.PHONY: test-kubernetes
test-kubernetes: setup binaries ## the embedded Kubernetes API against a real kube-apiserver, case by case
	METAMORPH_KUBERNETES_BIN="$$(tests/kubernetes/build)" $(CONFORMANCE) both
	METAMORPH_KUBERNETES_BIN="$$(tests/kubernetes/build)" $(CONFORMANCE) rules
	$(call left-out,defects) || $(CONFORMANCE) defects

.PHONY: test-kubernetes-e2e
test-kubernetes-e2e: setup binaries ## Kubernetes' own end-to-end suite, as far as it is about the API, on both
	METAMORPH_KUBERNETES_BIN="$$(tests/kubernetes/build $(KUBERNETES))" $(CONFORMANCE) suite

.PHONY: test-bmo
test-bmo: setup binaries ## switching from baremetal-operator and back, and its own suite; METAMORPH_BMO and METAMORPH_BMO_E2E name its programs
	METAMORPH_KUBERNETES_BIN="$$(tests/kubernetes/build)" $(CONFORMANCE) switch $(if $(RECORD),--report $(abspath $(RECORD)))
	METAMORPH_KUBERNETES_BIN="$$(tests/kubernetes/build)" $(CONFORMANCE) upstream

.PHONY: test-ironic
test-ironic: setup binaries test-agent-image demo-os ## the provisioner of Ironic on a real one, which PyPI has; emulated machines' lives with our agent, and with ironic-python-agent; SHARDS=all for all of it
	$(call both,tests/ironic/build >/dev/null,$(MAKE) --no-print-directory test-agent-image-ipa)
	which='all()'; for part in $(IRONICS); do if $(call left-out,$${part%=*}); then which="$$which and not test(/^$${part#*=}/)"; fi; done; \
	METAMORPH_IRONIC="$$(tests/ironic/build)" $(NEXTEST) --profile ironic -E "$$which"

.PHONY: test-provisioners
test-provisioners: setup binaries ## the conformance kit on the provisioners in Python and Go, which are built from examples/provisioners and examples/volumes
	METAMORPH_PROVISIONERS="$$(tests/provisioners/build)" $(NEXTEST) --profile system --ignore-default-filter -E 'binary_id(e2e::it) & test(/^samples::/) | binary_id(volumes::it) & test(/^python::/)'

.PHONY: kubernetes
kubernetes: ## builds that real control plane and its suite from their Go modules, once
	tests/kubernetes/build $(KUBERNETES)

.PHONY: fuzz
fuzz: setup ## libFuzzer on what clients send, each target for a minute; SECONDS_EACH=… for longer
	deploy/fuzz $(or $(SECONDS_EACH),60)

.PHONY: mutants
mutants: setup ## changes to the pure crates that no test sees, by cargo-mutants; MUTANTS='--file …' for a part of them
	deploy/mutants $(MUTANTS)

.PHONY: fresh
fresh: ## setup and the demo in a new minimal Debian that has the listed packages alone, as an ordinary user; needs root
	deploy/fresh

.PHONY: bench
bench: setup release agent-image bench-agent-image-ipa demo-os ## the table of measured figures, a real Ironic's among them, which PyPI has; fails beyond a limit
	METAMORPH_IRONIC="$$(tests/ironic/build)" METAMORPH_BENCH_DEMO=1 $(CARGO) bench --workspace --bench figures

.PHONY: lint
lint: formatted binaries ## layout, budgets, formatting, subjects of commits, compiler and clippy warnings
	deploy/subjects
# Licences are read in the crates themselves, those that tests do without among them.
	$(CARGO) fetch --quiet --locked --target x86_64-unknown-linux-gnu --target aarch64-unknown-linux-gnu
	$(XTASK) tidy

.PHONY: formatted
formatted: ## fails if rustfmt would change a file
	$(CARGO) fmt --all --check

.PHONY: generated
generated: binaries ## fails if docs/generated differs from the code
	$(XTASK) generate --check

.PHONY: generate
generate: binaries ## writes docs/generated anew
	$(XTASK) generate

.PHONY: slowest
slowest: ## the ten slowest tests of the last runs
	@$(DEBUG)/xtask slowest

.PHONY: setup
setup: ## installs missing Debian packages (deploy/packages.txt); the only target that may ask for root
	@deploy/setup

.PHONY: binaries
binaries: ## programs and tests, hardly optimised, and linted
	$(CHECKED) $(CARGO) build $(TESTED) --all-targets

.PHONY: release
release: ## the programs, optimised
	$(CARGO) build --release --workspace --bin metamorph --bin bmc-sim

.PHONY: agent
agent: $(AGENT) ## the agent as one static program

.PHONY: oci
oci: setup release agent-image $(if $(AARCH64),agent-image-aarch64) ## an OCI archive of the program and the agent image: .cache/metamorph.oci.tar; AARCH64=1 with the one for aarch64, too
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 0)} \
		deploy/oci/build --program $(METAMORPH) --agent-image $(AGENT_IMAGE) $(if $(AARCH64),--agent-image $(AARCH64_AGENT_IMAGE)) --out $(CACHE)/metamorph.oci.tar

.PHONY: agent-image
agent-image: $(AGENT_IMAGE)/manifest.json ## kernel, ramdisk and boot loader that servers boot over virtual media

.PHONY: agent-image-aarch64
agent-image-aarch64: $(AARCH64_AGENT_IMAGE)/manifest.json ## the same for machines with Arm processors

.PHONY: agent-image-ipa
agent-image-ipa: setup release ## a ramdisk with ironic-python-agent, of Debian's packages and of PyPI's: .cache/agent-image-ipa
	$(METAMORPH) agent-image build --flavor ipa --out $(IPA_IMAGE)

.PHONY: test-agent-image-ipa
test-agent-image-ipa: $(TEST_IPA_IMAGE)/manifest.json ## the same ramdisk for tests, with a hardware manager of theirs (tests/ironic/ramdisk)

# Kept until somebody removes it: what it is made of is Debian's and PyPI's.
.PHONY: bench-agent-image-ipa
bench-agent-image-ipa: release ## the same ramdisk for figures, if there is none
	[ -e $(IPA_IMAGE)/manifest.json ] || $(METAMORPH) agent-image build --flavor ipa --out $(IPA_IMAGE)

.PHONY: test-agent-image
test-agent-image: $(TEST_AGENT_IMAGE)/manifest.json ## the same with the agent as tests have it

.PHONY: test-agent-image-aarch64
test-agent-image-aarch64: $(AARCH64_TEST_AGENT_IMAGE)/manifest.json ## the same for machines with Arm processors

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

$(AGENT_IMAGE)/manifest.json: $(AGENT) release
	$(METAMORPH) agent-image build --agent $(AGENT) --out $(AGENT_IMAGE)
	@touch $@

$(TEST_AGENT_IMAGE)/manifest.json: $(TEST_AGENT)
	$(CONFINED) $(DEBUG)/metamorph agent-image build --agent $(TEST_AGENT) --out $(TEST_AGENT_IMAGE)
	@touch $@

# What else it is made of is Debian's and PyPI's.
$(TEST_IPA_IMAGE)/manifest.json: $(shell find $(TEST_IPA_FILES) crates/devices/boot-media/src/agent_image -type f) | binaries
	$(CONFINED) $(DEBUG)/metamorph agent-image build --flavor ipa --files $(TEST_IPA_FILES) --out $(TEST_IPA_IMAGE)

$(TEST_AGENT): binaries ;

$(AARCH64_AGENT): FORCE
	deploy/aarch64/build --profile agent --target-dir $(CROSS)

$(AARCH64_TEST_AGENT): FORCE
	deploy/aarch64/build --profile emulated --target-dir $(CROSS)

$(AARCH64_AGENT_IMAGE)/manifest.json: $(AARCH64_AGENT) release
	$(METAMORPH) agent-image build --agent $(AARCH64_AGENT) --out $(AARCH64_AGENT_IMAGE)
	@touch $@

$(AARCH64_TEST_AGENT_IMAGE)/manifest.json: $(AARCH64_TEST_AGENT) | binaries
	$(CONFINED) $(DEBUG)/metamorph agent-image build --agent $(AARCH64_TEST_AGENT) --out $(AARCH64_TEST_AGENT_IMAGE)
	@touch $@

.PHONY: clean
clean: ## removes what was built, downloads and images included
	rm -rf $(CACHE)/agent-image* $(CACHE)/demo-os $(CACHE)/rust-aarch64
	$(CARGO) clean
