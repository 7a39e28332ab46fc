# make demo   install and run the quickstart, with and without noise; says where the report is
# make test   lint, types, import rules, tests (sets itself up first)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt
DEMO := runs/demo

.PHONY: demo install test lint test-slow bench clean

demo: $(VENV)/installed
	rm -rf $(DEMO)
	$(BIN)/sfumato run quickstart --seeds 5 --out $(DEMO)/private
	$(BIN)/sfumato run quickstart --set protocol=hfl --seeds 5 --out $(DEMO)/no-noise
	$(BIN)/sfumato report $(DEMO)/private $(DEMO)/no-noise --out $(DEMO)/report.html

install: $(VENV)/installed

# torch first and by its exact version: anything else may bring gigabytes
$(VENV)/installed: pyproject.toml constraints.txt
	python3 -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(PIP) --editable '.[hub,tensorboard,plan,dev]'
	touch $@

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -m "not slow" --numprocesses 2

test-slow: $(VENV)/installed-dev
	$(BIN)/pytest -m slow

bench: $(VENV)/installed-dev
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
