# `make app` opens the lab, `make test` checks it; both make .venv on the first call.
# PYTHON    the Python to build .venv with, 3.11 or newer
# PORT      where the app is served
# PIP_ARGS  passed to every pip call, such as --extra-index-url=ADDRESS of a CPU-only torch (see README)

PYTHON ?= python3
PORT ?=
PIP_ARGS ?=
VENV ?= .venv

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev
INSTALLED_BENCH := $(VENV)/.installed-bench

.PHONY: help app test test-all checks bench clean
.DEFAULT_GOAL := help

help:
	@echo "make app       open the lab in the browser (PORT=8600 chooses the port)"
	@echo "make test      lint, types and all tests but the slow ones"
	@echo "make test-all  the slow tests too"
	@echo "make bench     how fast training and the app are; leave the machine alone meanwhile"
	@echo "make clean     remove .venv and caches; runs stay"

app: $(INSTALLED)
	$(BIN)/ega-mope app $(if $(PORT),--port $(PORT))

test: checks
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

test-all: checks
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

checks: $(INSTALLED_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(INSTALLED_BENCH) $(INSTALLED_DEV)
	$(BIN)/python -m benchmarks.train_speed
	$(BIN)/python -m benchmarks.app_speed

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "expected Python 3.11 or newer as PYTHON, got $$($(PYTHON) --version 2>&1 | head -n 1); try make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(INSTALLED): requirements.txt pyproject.toml | $(BIN)/python
	@echo "installing what the lab needs into $(VENV); the first time this takes minutes"
	$(PIP) $(PIP_ARGS) -r requirements.txt
	$(PIP) $(PIP_ARGS) --no-deps -e .
	@touch $@

$(INSTALLED_DEV): requirements-dev.txt $(INSTALLED)
	$(PIP) $(PIP_ARGS) -r requirements-dev.txt
	@touch $@

$(INSTALLED_BENCH): requirements-bench.txt $(INSTALLED)
	$(PIP) $(PIP_ARGS) -r requirements-bench.txt
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
