# Two commands on a fresh machine: `make demo` and `make test`. Each makes the environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Options of the demo: `make demo DEMO="--seeds 3"` runs three seeds.
DEMO ?=
# How to become root for `make browser`.
SUDO ?= $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: help install demo test lint numeric slow bench browser format clean

help: ## Show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(VENV)/.runtime ## Make .venv with snacs in it

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "snacs needs Python 3.11 or newer; give one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: $(VENV)/.python pyproject.toml constraints.txt
	$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(VENV)/.runtime ## Train, prune, repair and retrain a small network on embedded data
	$(BIN)/snacs demo $(DEMO)

test: lint numeric ## Lint, types, import contracts and all tests but the slow ones
	$(BIN)/python -m pytest

numeric: $(VENV)/.dev ## The numeric rooms once more, without compiled kernels
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q -p no:cacheprovider tests/scores tests/limits tests/test_selection.py

lint: $(VENV)/.dev ## ruff, mypy --strict, import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

slow: $(VENV)/.dev ## The tests that take minutes
	$(BIN)/python -m pytest -m slow --timeout 3600

bench: $(VENV)/.dev ## Measure what the documentation claims about speed
	$(BIN)/python -m benchmarks

browser: $(VENV)/.dev ## Install Chromium, so that `make test` opens reports in it
	@for name in chromium chromium-browser google-chrome; do \
	  if command -v $$name; then echo "Reports are tested in this browser."; exit 0; fi; done; \
	if command -v apt-get >/dev/null; then $(SUDO) apt-get update -qq && \
	  $(SUDO) apt-get install -y -qq chromium chromium-driver; \
	else $(BIN)/playwright install chromium; fi

format: $(VENV)/.dev ## Format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean: ## Remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
