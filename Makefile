# The commands of the README. They need Python 3.11 or newer with pip, and make.

# Another interpreter: make demo PYTHON=python3.12
PYTHON ?= python3
# Relative, so that a path with spaces above it does not matter.
BIN = .venv/bin

# Test processes at a time: two for each processor. Whole runs wait more than they compute, but a fleet is six processes.
JOBS ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')
# Whole runs first, and a process that has no test left takes some of another: the end comes for all at once.
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(PYTEST_OPTIONS)

.PHONY: help demo check test nightly lint bench clean

help:
	@echo 'make demo    install into .venv, index the sample notes and ask them a few questions'
	@echo 'make check   install the tools, then lint, types and unit tests (a minute)'
	@echo 'make test    the same and all other tests: what continuous integration runs (minutes)'
	@echo 'make nightly the tests with real programs of npm, then fuzz, chaos and soak (hours)'
	@echo 'make lint    the part of make check that runs no code: ruff, mypy, import-linter'
	@echo 'make bench   measure speed against the targets (minutes)'
	@echo 'make clean   remove .venv, .demo and caches'
	@echo
	@echo 'Another Python: make demo PYTHON=python3.12'

demo: .venv/.installed
	@PATH="$$PWD/$(BIN):$$PATH" sh scripts/demo.sh

check: lint
	$(PYTEST) tests/unit

test: lint
	@sh scripts/redis.sh
	$(PYTEST)

nightly: .venv/.installed-dev
	@sh scripts/redis.sh
	QMD_PROGRAM=$$(sh scripts/qmd.sh) MCP_CLIENTS=$$(sh scripts/clients.sh) OPENCLAW_PROGRAMS=$$(sh scripts/openclaw.sh) $(PYTEST) tests/integration
	$(BIN)/python -m tests.fuzz
	$(BIN)/python -m tests.chaos
	$(BIN)/python -m tests.soak

lint: .venv/.installed-dev
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m mypy
	$(BIN)/lint-imports

bench: .venv/.installed-dev
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv .demo build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Installed again only when pyproject.toml changed; the code itself is used from where it is.
.venv/.installed: pyproject.toml
	@PYTHON='$(PYTHON)' sh scripts/venv.sh
	@echo 'Installing Memline into .venv ...'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/.installed-dev: pyproject.toml
	@PYTHON='$(PYTHON)' sh scripts/venv.sh
	@echo 'Installing Memline and the tools for its tests into .venv ...'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch .venv/.installed $@
