# make demo · make test · make check · make bench · make docs: each sets itself up in .venv
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
PIP     = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test check browser lint format snapshots bench attack tables docs clean

# torch first and pinned, so that nothing else pulls in a larger build of it
$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e '.[demo,report]'
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(PIP) -e '.[dev]'
	touch $@

demo: $(VENV)/.demo
	$(BIN)/ldmnet demo

test: lint browser
	$(BIN)/python -m pytest -n 2 --dist loadfile

# what to run before a commit: about a minute. The tests marked slow (site, browser, wheel, mutants, long training) are left out
check: lint
	$(BIN)/python -m pytest -q -m "not slow" -n 2 --dist loadfile

# the report's tests drive a browser: CI installs Debian's where it may, and they are skipped where there is none
browser:
	@if [ "$(CI)" = true ] && command -v apt-get >/dev/null && \
	  ! command -v chromium >/dev/null && ! command -v google-chrome >/dev/null; then \
	  may=; [ "$$(id -u)" = 0 ] || may="sudo -n"; \
	  { $$may timeout 120 apt-get -qq update && \
	    $$may env DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -qq -y --no-install-recommends install chromium; \
	  } >/dev/null 2>&1 || echo "chromium could not be installed: the browser's tests are skipped"; \
	fi

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# accept the words of the errors as they are now; read `git diff tests/messages.json` before you commit them
snapshots: $(VENV)/.dev
	$(BIN)/python -m pytest -q --renew-messages

# each prints ratios taken in one run; close other programs first
bench: $(VENV)/.dev
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/overhead.py --net cifar --n 500
	$(BIN)/python benchmarks/update.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/roofline.py
	$(BIN)/python benchmarks/rough.py

# kills, damaged files, full disks, fuzzed readers, numbers; resumes where it was cut. SECONDS of each: make attack SECONDS=60
SECONDS ?= 1800
attack: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m attack --seconds $(SECONDS)

# the site, in site/; `mkdocs serve` shows it while you write
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean
	@echo "open site/index.html"

$(VENV)/.docs: $(VENV)/.demo
	$(PIP) -e '.[docs]'
	touch $@

# README and docs from the records in results/
tables: $(VENV)/.demo
	$(BIN)/python scripts/refresh_tables.py

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache
