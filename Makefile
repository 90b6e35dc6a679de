# make demo · make test · make lint · make bench · make docs: each sets itself up in .venv
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
READY   = $(VENV)/.ready

.PHONY: demo test lint format bench clean

# torch first and pinned, so that nothing else pulls in a larger build of it
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/ldmnet demo

test: lint
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# each prints ratios taken in one run; close other programs first
bench: $(READY)
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/overhead.py --net cifar --n 500
	$(BIN)/python benchmarks/update.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/roofline.py

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache
