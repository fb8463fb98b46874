# Needs python3 (3.11+), git, make and a package registry; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One more than there are cores, as many tests wait for something.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

# Of all that pip says, how many packages there are so far: on a terminal in one line, elsewhere now and then.
define SHOW_PIP
function show(text) { printf(live ? "\r\033[K  %s" : "  %s\n", text) > "/dev/stderr" }
/^Collecting / { count += 1; if (live || count % 20 == 0) show(count " packages fetched") }
/^Installing / { show("installing " count " packages") }
/^not done$$/ { failed = 1 }
END { if (live) printf "\r\033[K" > "/dev/stderr"; exit failed }
endef
export SHOW_PIP

.PHONY: help setup up test lint types unit conformance bench docs lock clean

help: ## Show the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

setup: $(STAMP) ## Install everything into .venv (idempotent)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Rookery needs Python 3.11 or later; say which one: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up $(VENV) ..." >&2
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "python3 has no venv module; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@{ $(BIN)/python -u -m pip install --progress-bar off --disable-pip-version-check --require-hashes \
	  -r requirements.lock || echo "not done"; } | awk -v live="$$(test -t 2 && echo 1)" "$$SHOW_PIP"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

up: setup ## Set everything up and show it at work: two agents on a throw-away project, until Ctrl-C
	@exec $(BIN)/rookery demo

test: lint types unit ## Lint, types and every test

lint: setup ## Style and banned APIs
	$(BIN)/ruff format --check --quiet src tests bench docs
	$(BIN)/ruff check --quiet src tests bench docs

types: setup ## pyright, strict
	$(BIN)/pyright --warnings

unit: setup ## Every test
	$(BIN)/python -m tests -n $(JOBS) --dist worksteal

conformance: setup ## The official MCP conformance suite, one line a set
	$(BIN)/python -m tests.conformance

bench: setup ## Figures; ONLY=<name> runs bench/<name>.py alone
	$(BIN)/python -m bench $(ONLY)

docs: setup ## Write the generated pages of docs/
	$(BIN)/python docs/generate.py

lock: setup ## Resolve the dependencies anew into requirements.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --upgrade \
	  --group dev pyproject.toml -o requirements.lock

clean: ## Remove what setup and the tools made
	rm -rf $(VENV) .ruff_cache .hypothesis dist site bench/results
