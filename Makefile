# The only thing a machine needs is a python3 (3.9 or later) with pip; each target sets up the rest.
PYTHON ?= python3
ARGS ?=

IN_VENV := .venv/bin/python
CHECKED := src tools $(wildcard tests bench examples)

.DEFAULT_GOAL := help
# Two targets that set up the same environment at once would break it.
.NOTPARALLEL:
.PHONY: help demo test test-quick torture check format bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo 'ARGS="..." is passed on: make test ARGS="-k torn"'

demo: ## show what the package does; installs nothing
	@PYTHONPATH="$(CURDIR)/src" $(PYTHON) -m agent_checkpoint.demo $(ARGS)

test: ## the suite on this Python, then a shorter one on each other Python from 3.9 to 3.14
	@$(PYTHON) tools/suite.py -- $(ARGS)

test-quick: ## the shorter suite on this Python only
	@$(PYTHON) tools/suite.py --main-only --quick -- $(ARGS)

torture: ## the tests that take minutes: kills, full disks, long sweeps
	@$(PYTHON) tools/environment.py test
	CHECKPOINT_TESTS=full $(IN_VENV) -m pytest -m torture tests $(ARGS)

check: ## lint, format and types
	@$(PYTHON) tools/environment.py dev
	$(IN_VENV) -m ruff check $(CHECKED)
	$(IN_VENV) -m ruff format --check $(CHECKED)
	$(IN_VENV) -m mypy $(CHECKED)
	$(IN_VENV) -m basedpyright

format: ## rewrite the code as `make check` wants it
	@$(PYTHON) tools/environment.py dev
	$(IN_VENV) -m ruff check --fix --exit-zero $(CHECKED)
	$(IN_VENV) -m ruff format $(CHECKED)

bench: ## measure the promised figures
	@$(PYTHON) tools/environment.py test
	$(IN_VENV) bench/run.py $(ARGS)

clean: ## back to a fresh checkout
	rm -rf .venv .venvs .venv-tools build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name .git -prune -o -type d -name __pycache__ -print0 | xargs -0 rm -rf
