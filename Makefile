# make help lists what there is. PYTHON and VENV can be set: make demo PYTHON=python3.12 VENV=/tmp/venv

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
# One more than cores: some tests wait for processes to end.
TEST_JOBS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )))
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help install demo test test-quick lint tables figures claims bench wheel clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# One stamp per set of dependencies; the package itself is installed in place, so edits need no new install.
$(VENV)/installed: setup.cfg pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/installed-test: setup.cfg pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@ $(VENV)/installed

$(VENV)/installed-dev: setup.cfg pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[test,dev]'
	touch $@ $(VENV)/installed-test $(VENV)/installed

install: $(VENV)/installed  ## make the virtual environment and install the package into it

demo: $(VENV)/installed  ## a real comparison in a few minutes: 7 rows x 3 seeds on digits, table and figures
	$(BIN)/accordion-bench sweep table=demo results=outputs/demo
	$(BIN)/accordion-bench figures demo --results outputs/demo
	$(BIN)/accordion-bench tables demo --results outputs/demo

test: $(VENV)/installed-test  ## install and run the tests, on all cores
	$(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal $(PYTEST_ARGS)

test-quick: $(VENV)/installed-test  ## the same without what takes long: half a minute
	$(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal -m 'not thorough' $(PYTEST_ARGS)

lint: $(VENV)/installed-dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

tables: $(VENV)/installed  ## print and write every table that has runs
	$(BIN)/accordion-bench tables

figures: $(VENV)/installed  ## draw every figure that has runs
	$(BIN)/accordion-bench figures

claims: $(VENV)/installed  ## say what the runs show of the paper's claims
	$(BIN)/accordion-bench claims

bench: $(VENV)/installed  ## speed of compressors and steps on this machine
	set -e; for file in benchmarks/bench_*.py; do $(BIN)/python $$file; done

wheel: $(VENV)/installed-dev  ## build dist/*.whl
	$(BIN)/python -m build --wheel

clean:  ## remove what was built; results and the virtual environment stay
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find accordion_bench conf tests -name __pycache__ -type d -prune -exec rm -rf {} +
