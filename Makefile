# make demo   set up, then run the main job on real photos
# make test   set up, then check style and types and run all tests
# make test-quick   the tests of every part, in minutes: what to run while you work
# make test-system  the tests that kill processes, run notebooks, open a browser or train for seconds
# make setup  only the set-up: .venv with everything the others need
# make lint   style and types alone
# make bench  the measurements behind docs/claims.md; on a machine with a card also bench_card.py and bench_cores.py with --photos and --num
# make clean  remove caches and build output (never a workspace; .venv stays)

# The first interpreter that is new enough; choose another with `make test PYTHON=/path/to/python3`.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
PROCESSES ?= 2
BIN := .venv/bin
INSTALLED := .venv/.installed
PYTEST := $(BIN)/pytest -n $(PROCESSES) --dist worksteal

.PHONY: setup demo test test-quick test-system lint bench clean
.DEFAULT_GOAL := test

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "error  no Python 3.11 or newer was found" >&2; \
		echo "why    unchoke needs it, and '$(or $(PYTHON),python3)' is missing or older" >&2; \
		echo "try    install Python 3.11, then: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv .venv
	$(BIN)/python -m pip install -c constraints.txt -e ".[dev]"
	@touch $@

demo: setup
	$(BIN)/unchoke demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(PYTEST)

test-quick: setup
	$(PYTEST) -m "not system"

test-system: setup
	$(PYTEST) -m system

bench: setup
	@set -e; for bench in benches/bench_*.py; do echo "== $$bench" >&2; $(BIN)/python "$$bench"; done

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage src/*.egg-info
	find src tests benches notebooks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
