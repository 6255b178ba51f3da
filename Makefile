# make demo   train task allocation, prove it, say where the report is (two minutes after the install)
# make test   what CI runs: style, types, import order, then the tests, fast ones first
# make thorough   near relatives of the slow tests, for which `make test` has no time
# All make .venv and install into it by themselves; nothing but Python 3.11+ and make is needed.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup demo test thorough lint fast bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "learnproof needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": try make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/learnproof train --config configs/demo.toml

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fast: setup
	$(BIN)/pytest -n 2 -m 'not slow and not thorough'

test: lint fast
	$(BIN)/pytest -n 2 -m 'slow and not thorough' --durations 12

thorough: setup
	$(BIN)/pytest -n 2 -m thorough

bench: setup
	$(BIN)/python benchmarks/allocation.py --quick

clean:
	rm -rf .venv build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
