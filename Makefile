# make demo · make test · make lint · make bench · make docs: each sets itself up in .venv
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
PIP     = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint format bench tables clean

# torch first and pinned, so that nothing else pulls in a larger build of it
$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e '.[demo]'
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(PIP) -e '.[dev]'
	touch $@

demo: $(VENV)/.demo
	$(BIN)/ldmnet demo

test: lint
	$(BIN)/python -m pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# each prints ratios taken in one run; close other programs first
bench: $(VENV)/.dev
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/overhead.py --net cifar --n 500
	$(BIN)/python benchmarks/update.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/roofline.py

# README and docs from the records in results/
tables: $(VENV)/.demo
	$(BIN)/python scripts/refresh_tables.py

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache
