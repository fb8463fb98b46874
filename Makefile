# Needs python3 (3.11+), git, make and a package registry; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Two more than there are cores, as many tests wait for something.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
# Tests start hundreds of daemons; without compiled modules each start takes twice as long.
unexport PYTHONDONTWRITEBYTECODE

# Shows how far setting up is: on a terminal in one line that moves every second, elsewhere a line now and then. Of what
# pip says only the number of packages is shown.
define SHOW_SETUP
import os, select, sys, time

live, every = sys.stderr.isatty(), 5
began, told, rest, count, doing, failed = time.monotonic(), -every, b"", 0, "beginning", False
try:
    while True:
        data = None
        if select.select([0], [], [], 1)[0]:
            data = os.read(0, 65536)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.startswith(b"step: "):
                    doing, told = line[6:].decode(), -every
                elif line.startswith(b"Collecting "):
                    count += 1
                    doing = "packages fetched: %d" % count
                elif line.startswith(b"Installing "):
                    doing, told = "installing packages: %d" % count, -every
                failed |= line == b"not done"
        seconds = int(time.monotonic() - began)
        if data == b"":
            break
        if live:
            sys.stderr.write("\r\033[K  %s ... %d s" % (doing, seconds))
        elif seconds - told >= every:
            told = seconds
            sys.stderr.write("  %s ... %d s\n" % (doing, seconds))
        sys.stderr.flush()
except KeyboardInterrupt:
    failed = True
sys.stderr.write("\r\033[K" if live else "")
sys.exit(failed)
endef
export SHOW_SETUP

.PHONY: help setup up test test-fast lint types unit soak conformance servers bench docs lock clean

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 16

setup: $(STAMP) ## Install everything into .venv (idempotent)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Rookery needs Python 3.11 or later; say which one: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up $(VENV) ..." >&2
	@{ echo "step: making $(VENV)"; \
	  if ! $(PYTHON) -m venv $(VENV) >&2; then \
	    echo "python3 has no venv module; on Debian: apt-get install python3-venv" >&2; echo "not done"; exit; fi; \
	  echo "step: asking for packages"; \
	  $(BIN)/python -u -m pip install --progress-bar off --disable-pip-version-check --require-hashes \
	    -r requirements.lock && echo "step: adding Rookery itself" && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . || \
	    echo "not done"; } | $(PYTHON) -u -c "$$SHOW_SETUP"
	@touch $@

up: setup ## Set everything up and show it at work: two agents on a throw-away project, until Ctrl-C
	@exec $(BIN)/rookery demo

test: lint ## Lint, types and every test
	@$(MAKE) --no-print-directory -j2 types unit

test-fast: setup ## Every test that needs no OpenCode
	@env -u MAKEFLAGS -u MAKELEVEL $(BIN)/python -m tests -n $(JOBS) --dist worksteal -m "not opencode"

lint: setup ## Style and banned APIs
	$(BIN)/ruff format --check --quiet src tests bench docs
	$(BIN)/ruff check --quiet src tests bench docs

types: setup ## pyright, strict; it gives way to tests that run beside it
	nice $(BIN)/pyright --warnings

unit: setup ## Every test
	@env -u MAKEFLAGS -u MAKELEVEL $(BIN)/python -m tests -n $(JOBS) --dist worksteal

soak: setup ## The tests that repeat, with their full counts
	ROOKERY_SOAK=1 $(BIN)/python -m tests -n 2 -m soak

conformance: setup ## The official MCP conformance suite, one line a set
	$(BIN)/python -m tests.conformance

servers: setup ## Real MCP servers from npm and PyPI, directly and through the gateway; ONLY="<name> ..." takes some
	$(BIN)/python -m tests.servers $(ONLY)

bench: setup ## Figures; ONLY=<name> runs bench/<name>.py alone
	$(BIN)/python -m bench $(ONLY)

docs: setup ## Generate the reference pages of docs/ and the methods of the Python client
	$(BIN)/python docs/generate.py

lock: setup ## Resolve the dependencies anew into requirements.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --upgrade \
	  --group dev pyproject.toml -o requirements.lock

clean: ## Remove what setup and the tools made
	rm -rf $(VENV) .ruff_cache .hypothesis dist site bench/results
