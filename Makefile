# The habits: `make twin`, `make test`, `make lint`, `make bench`, `make docs`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
export DVC_NO_ANALYTICS := 1
# Containers often set this. Each stage and each DVC command is a new Python: without bytecode it would
# compile torch, DVC and Prefect again, 2 to 10 s a start.
unexport PYTHONDONTWRITEBYTECODE
OBJECT ?= spam

.PHONY: twin test lint bench docs lock clean

# Everything that a fresh machine needs: an environment with the locked versions.
$(VENV)/.installed: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Twinloop needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; say `make PYTHON=python3.12 ...`")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

# Build the demo object's twin, then say where the report is and what was identified.
twin: $(VENV)/.installed
	dvc repro
	twinloop report $(OBJECT)

# One process per core, at most four: each holds torch and Warp (about 1 GiB).
test: $(VENV)/.installed
	$(BIN)/python -m pytest --numprocesses logical --maxprocesses 4

lint: $(VENV)/.installed
	ruff check .
	ruff format --check .
	mypy
	$(BIN)/python -m pipelines graph --check
	$(BIN)/python -m docs.tables --check

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks.foundation

# Pictures and tables of the docs that are made by commands.
docs: $(VENV)/.installed
	$(BIN)/python -m docs.tables

# Pin what is installed: versions only, no local labels, so that the lock installs anywhere.
lock: $(VENV)/.installed
	$(BIN)/python -m pip freeze --exclude-editable | sed -E 's/ @ .*//; s/\+[a-z0-9.]+$$//' > requirements.lock

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
