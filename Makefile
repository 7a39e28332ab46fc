# make demo          install and run the quickstart, with and without noise; says where the report is
# make test          lint, types, import rules and tests at once (sets itself up first); CHOSEN="not slow or listed" as CI does
# make test-slow     the tests that make test leaves out: long statistical ones, those of tests/slow.txt (CI leaves its last
#                    part out, too), and all random cases of a rule
# make test-long     the rest of the families that make test-slow runs the first part of: hours, before a release
# make test-lowest   the tests that bear on figures, with the least versions that pyproject.toml allows
# make frozen        whether all specs compute what they did at another commit: make frozen BASE=main
# make bench         CPU time of start-up, accounts and rounds over that of another commit, make bench BASE=main; rounds
#                    against other simulators without BASE
# make test-wheel    builds the wheel into dist/, installs it into an empty environment and runs the quickstart there
# make studies-docs  writes results of the studies into docs/; OUT=runs/studies keeps what is complete there first
# make lock          choose versions anew within pyproject.toml; UPGRADE=--upgrade takes the newest
#
# PYTHON=python3.12 chooses the Python of a new environment, VENV=.venv-3.12 its folder.
VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,python3)
PIP := $(BIN)/python -m pip install --quiet
LOCKED := requirements/install-locked.sh $(VENV)
LOCK ?= requirements/run.lock
DEMO := runs/demo
WHEEL_VENV := .venv-wheel
CHOSEN ?= not slow
# neighbours stay in one process, which makes what they share once; the process that is done first takes over half of the
# tests that the other has left
TWO := --numprocesses 2 --dist worksteal
# two processes of two threads each would wait for each other; compiled tests are kept for the next process
ONE_THREAD := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=
FIGURES := tests/golden tests/privacy tests/claims tests/schedule tests/radio tests/mechanisms tests/planning tests/secure_aggregation tests/election tests/wire \
    tests/test_random.py tests/run_folder/test_lock.py

.PHONY: demo install python test lint tests test-slow test-long lowest test-lowest test-wheel frozen studies-docs lock bench clean

demo: $(VENV)/installed
	rm -rf $(DEMO)
	$(BIN)/sfumato run quickstart --seeds 5 --out $(DEMO)/private
	$(BIN)/sfumato run quickstart --set protocol=hfl --seeds 5 --out $(DEMO)/no-noise
	$(BIN)/sfumato report $(DEMO)/private $(DEMO)/no-noise --out $(DEMO)/report.html

install: $(VENV)/installed

python:
	@$(PYTHON) requirements/check-python.py $(VENV)

$(VENV)/installed: pyproject.toml $(LOCK) requirements/torch.lock | python
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(LOCKED) $(LOCK)
	requirements/install-torch.sh $(VENV)
	$(PIP) --no-deps --no-build-isolation --editable .
	$(BIN)/python -m pip check
	touch $@

$(VENV)/installed-dev: $(VENV)/installed requirements/dev.lock
	$(LOCKED) requirements/dev.lock
	touch $@

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# both at once: most of lint is mypy, which uses one core
test: $(VENV)/installed-dev
	$(MAKE) --jobs 2 lint tests

tests: $(VENV)/installed-dev
	$(ONE_THREAD) $(BIN)/pytest -m "$(CHOSEN)" $(TWO)

test-slow: $(VENV)/installed-dev
	$(ONE_THREAD) $(BIN)/pytest -m "slow and not long" $(TWO)
	$(ONE_THREAD) $(BIN)/pytest -m "not slow or listed" --hypothesis-profile=thorough $(TWO) tests/privacy/tree

test-long: $(VENV)/installed-dev
	$(ONE_THREAD) $(BIN)/pytest -m long $(TWO)

lowest:
	$(MAKE) VENV=.venv-lowest LOCK=requirements/lowest.lock install

# deprecations of packages that are years apart say nothing about this one
test-lowest: lowest
	$(ONE_THREAD) .venv-lowest/bin/pytest -m "$(CHOSEN)" -W ignore::DeprecationWarning $(TWO) $(FIGURES)

# away from the checkout, whose src/ would be imported otherwise
test-wheel: $(VENV)/installed
	rm -rf build dist $(WHEEL_VENV)
	$(PIP:install=wheel) --no-deps --no-build-isolation --wheel-dir dist .
	$(PYTHON) -m venv $(WHEEL_VENV)
	requirements/install-locked.sh $(WHEEL_VENV) requirements/run.lock
	requirements/install-torch.sh $(WHEEL_VENV)
	$(WHEEL_VENV)/bin/python -m pip install --quiet dist/*.whl
	folder=$$(mktemp -d); trap 'rm -r "$$folder"' EXIT; cd "$$folder" && \
	$(abspath $(WHEEL_VENV))/bin/sfumato run quickstart --set training.rounds=5 --out run && \
	$(abspath $(WHEEL_VENV))/bin/sfumato verify run

frozen: $(VENV)/installed
	@test -n "$(BASE)" || { echo "name the commit to compare with: make frozen BASE=main" >&2; exit 2; }
	folder=$$(mktemp -d); \
	trap 'git worktree remove --force "$$folder/base"; rm -r "$$folder"' EXIT; trap 'exit 130' INT TERM; \
	record() { PYTHONPATH="$$2/src" $(abspath $(BIN)/python) tests/frozen/behaviour.py record "$$folder/$$1.json" --root "$$2"; }; \
	git worktree add --quiet --detach "$$folder/base" "$(BASE)" && \
	record before "$$folder/base" && record after "$(CURDIR)" && \
	$(BIN)/python tests/frozen/behaviour.py compare "$$folder/before.json" "$$folder/after.json"

studies-docs: $(VENV)/installed
	$(BIN)/python docs/study_results.py $(OUT)

lock: $(VENV)/installed
	requirements/lock.sh $(CURDIR)/$(BIN)/uv $(UPGRADE)

bench: $(VENV)/installed-dev
ifdef BASE
	folder=$$(mktemp -d); \
	trap 'git worktree remove --force "$$folder/base"; rm -r "$$folder"' EXIT; trap 'exit 130' INT TERM; \
	git worktree add --quiet --detach "$$folder/base" "$(BASE)" && \
	$(BIN)/python benchmarks/cpu_time.py "$$folder/base/src" src
else
	$(BIN)/python benchmarks/run.py
endif

clean:
	rm -rf build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache

# make docs          builds the documentation site into site/; its tutorials run while it is built
.PHONY: docs
docs: $(VENV)/installed-docs
	$(BIN)/mkdocs build --strict

$(VENV)/installed-docs: $(VENV)/installed requirements/docs.lock
	$(LOCKED) requirements/docs.lock
	touch $@
