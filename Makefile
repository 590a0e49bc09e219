# make demo     the whole life of a run on this machine: no GPU, account or server
# make test     every test, also the on-box half on each Python 3.8 to 3.13 that is found
# make check    format, lint, types, imports, stale files, docs: seconds
# make bench    measurements, as ratios
# make clean    remove environments and caches; results that you pulled stay
#
# Each target makes its own environment (.venv, .venvs) when it is missing or out of date. All paths are relative:
# the checkout may lie in a folder with spaces.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help demo test check format bench clean venv-run venv-dev venv-test docs
MAKEFLAGS += --no-print-directory

# Nothing from the caller's shell may choose our modules or settle in the tree.
unexport PYTHONPATH PYTHONHOME
export PYTHONDONTWRITEBYTECODE := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

PY := .venv/bin/python

help:
	@sed -n 's/^# //p' Makefile | sed -n '1,5p'

demo: venv-run
	@.venv/bin/outlive demo $(ARGS)

test: venv-test
	@sh tools/test.sh $(ARGS)

check: venv-dev
	@$(PY) tools/check.py

format: venv-dev
	@$(PY) -m ruff format -q .
	@$(PY) -m ruff check -q --fix .

docs: venv-dev
	@$(PY) tools/gen_docs.py

bench: venv-dev
	@$(PY) benchmarks/run.py $(ARGS)

venv-run venv-dev venv-test:
	@$(PY) tools/venv.py $(@:venv-%=%) --check 2>/dev/null || sh tools/with_python.sh tools/venv.py $(@:venv-%=%)

clean:
	rm -rf .venv .venvs .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .grimp_cache .hypothesis build dist
	find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
