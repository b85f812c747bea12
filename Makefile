# make demo   install what the demo needs into .venv, then run the main job on real photos
# make test   set up, then check style and types and run the tests that every change must pass, in under ten minutes
# make test-all     the same and the campaigns: full matrices, hundreds of kills; before a release, and what docs/claims.md cites
# make test-costs   what each test costs, into .costs.json; notes the slowest files, which then run first
# make setup  .venv with everything that developing needs
# make lint   style and types alone
# make wheel-check  the wheel, installed into an empty environment without the constraints, runs the demo; downloads gigabytes
# make docs   build the manual into site/, strictly; its search works without a network
# make pages  run the commands of the manual and put in what they print now; `make pictures` and `make notebooks` do the same for those
# make bench  the measurements behind docs/claims.md; on a machine with a card also bench_card.py and bench_cores.py with --photos and --num
# make mlflow-page  a whole MLflow in .mlflow/, whose page one browser test opens; it cannot share an environment with the newest pyarrow
# make clean  remove caches and build output (never a workspace; .venv stays)

# The first interpreter that is new enough; choose another with `make test PYTHON=/path/to/python3`.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
PROCESSES ?= $(shell $(PYTHON) -c 'import os; print(os.cpu_count() + 1)')  # one more than cores: some tests wait
BIN := .venv/bin
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n $(PROCESSES) --dist worksteal

.PHONY: setup demo test test-all test-costs lint compiled wheel-check docs pages pictures notebooks bench mlflow-page clean
.DEFAULT_GOAL := test

setup: .venv/.dev

# .venv/.demo and .venv/.dev say which extra was installed, and when.
.venv/.%: pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "error  no Python 3.11 or newer was found" >&2; \
		echo "why    unchoke needs it, and '$(or $(PYTHON),python3)' is missing or older" >&2; \
		echo "try    install Python 3.11, then: make $(or $(MAKECMDGOALS),test) PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv .venv
	@echo "installing unchoke[$*] into .venv; the log is .venv/install.log"
	@$(BIN)/python -m pip install -c constraints.txt -e ".[$*]" >.venv/install.log 2>&1 || { \
		tail -n 20 .venv/install.log >&2; \
		echo "error  the packages could not be installed; the whole log is .venv/install.log" >&2; exit 1; }
	@touch $@

demo: $(if $(wildcard .venv/.dev),.venv/.dev,.venv/.demo)
	@$(BIN)/unchoke demo
	@echo "        (first: source .venv/bin/activate)"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint compiled
	$(PYTEST)

test-all: lint compiled
	$(PYTEST) -m ""

test-costs: compiled
	$(PYTEST) --costs=.costs.json
	$(BIN)/python tests/house/costs.py .costs.json > tests/slowest.txt

# Tests start many processes: none of them has to compile what it imports. pytest keeps what it made of the tests for the next run.
compiled: setup
	@$(BIN)/python -m compileall -q src

wheel-check:
	rm -rf build dist .wheel-check
	"$(PYTHON)" -m venv .wheel-check/build
	.wheel-check/build/bin/pip install --quiet build
	.wheel-check/build/bin/python -m build
	"$(PYTHON)" -m venv .wheel-check/empty
	.wheel-check/empty/bin/pip install "$$(ls $(CURDIR)/dist/unchoke-*.whl)[demo]"
	.wheel-check/empty/bin/pip check
	cd .wheel-check && empty/bin/unchoke doctor && empty/bin/unchoke demo
	rm -rf .wheel-check

docs: setup
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_pages.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "the manual is site/index.html"

pages: setup
	$(BIN)/python tests/manual/run_pages.py

pictures: setup
	$(BIN)/python tests/manual/make_pictures.py

notebooks: setup
	$(BIN)/python tests/notebooks/run_notebooks.py

bench: setup
	@set -e; for bench in benches/bench_*.py; do echo "== $$bench" >&2; $(BIN)/python "$$bench"; done

mlflow-page: setup
	@test -x .mlflow/bin/mlflow || { $(BIN)/python -m venv .mlflow && .mlflow/bin/python -m pip install "mlflow==$$($(BIN)/python -c 'from importlib.metadata import version; print(version("mlflow-skinny"))')"; }
	UNCHOKE_TEST_MLFLOW=$(CURDIR)/.mlflow/bin/mlflow $(BIN)/pytest -n 0 tests/browser/test_mlflow_page.py

clean:
	rm -rf build dist .wheel-check site docs/notebooks docs/lint .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage src/*.egg-info
	find src tests benches notebooks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
