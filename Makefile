# One entry point for people and for CI. `make help` lists the targets.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
# The smallest machine we care about has two cores, and for a third of the time tests wait for processes and clocks.
JOBS ?= 3
# Container images often set it. Then each test process rewrites the asserts of 400 files, and each command that a test
# starts compiles the package again: a third of its CPU time.
unexport PYTHONDONTWRITEBYTECODE

# What others wrote is installed first: fixed versions, whose files must have the hashes that we know. Then the package
# itself, built by what was installed: it downloads nothing more.
ifdef UV
MAKE_VENV = $(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
INSTALL = $(UV) pip install --quiet --python $(BIN)/python
UNINSTALL = $(UV) pip uninstall --quiet --python $(BIN)/python
else
MAKE_VENV = $(PYTHON) -m venv $(VENV)
INSTALL = $(BIN)/python -m pip install --quiet
UNINSTALL = $(BIN)/python -m pip uninstall --quiet --yes
endif
INSTALL_PINNED = $(INSTALL) --require-hashes --requirement
INSTALL_OURS = $(INSTALL) --no-deps --no-build-isolation --editable .
# The package's former name, which an older checkout has installed here (decision 30). Quiet when there is none.
REMOVE_FORMER = $(UNINSTALL) pgqrs 2>/dev/null

.PHONY: help setup demo check quick test test-all test-times fuzz conform slow-clients audit-parsers requirements docs docs-pages stubs bench bench-peers bench-report proof soak long pgbouncer clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

$(VENV)/.core: pyproject.toml requirements/core.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "pgqrs needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..."; exit 1; }
	@echo "setting up $(VENV)"
	@$(MAKE_VENV)
	@$(INSTALL_PINNED) requirements/core.txt
	@$(REMOVE_FORMER)
	@$(INSTALL_OURS)
	@touch $@

$(VENV)/.dev: $(VENV)/.core requirements/dev.txt
	@echo "installing every backend and the development tools"
	@$(INSTALL_PINNED) requirements/dev.txt
	@touch $@

setup: $(VENV)/.dev ## make the virtual environment with every extra and the development tools

$(VENV)/.web: $(VENV)/.core requirements/web.txt
	@$(INSTALL_PINNED) requirements/web.txt
	@touch $@

demo: $(VENV)/.web ## see it survive: workflows on a temporary SQLite file, a worker killed, a run that goes on, the dashboard
	@$(BIN)/pgqrs demo

check: $(VENV)/.dev ## ruff, mypy strict, pyright, types of all that users can reach, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/basedpyright
	$(BIN)/python -m tools.verify_types
	$(BIN)/lint-imports

quick: $(VENV)/.dev ## units and behaviour on SQLite, for the inner loop: about a minute
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -q --on sqlite tests/unit tests/behaviour $(ARGS)

test-all test-times: override ARGS += --turso=all
test-all test-times: export PGQRS_TEST_LONG := 1
test-all: LONG = run
test-times: LONG = list
test-all: test ## as test, with the tests that take long, all of it on Turso too, and longer generators: what CI runs
test-times: test ## as test-all, and write the list of the tests that take long

LONG = leave
test: $(VENV)/.dev ## every test but those that take long, on SQLite and PostgreSQL (started here); the store's on Turso, too
	@command -v chromium >/dev/null || { echo "installing chromium for the dashboard's tests"; apt-get install -y -qq chromium >/dev/null; } || echo "no chromium: the tests in tests/browser are skipped (they fail in CI)"
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --long=$(LONG) $(ARGS)

fuzz: $(VENV)/.dev ## hostile requests to every HTTP route, or with ROWS=10000 hostile rows in every table; COUNT=100000 SEED=7 ON=postgres choose
	@COUNT="$(COUNT)" ROWS="$(ROWS)" SEED="$(SEED)" ON="$(ON)" PYTHONPATH=tests $(BIN)/python -m $(if $(ROWS),security.rows,web.fuzz)

conform: $(VENV)/.dev ## schemathesis against `pgqrs serve`: does it do what its OpenAPI document says; EXAMPLES=50 SEED=7 choose
	@EXAMPLES="$(EXAMPLES)" SEED="$(SEED)" PYTHONPATH=tests $(BIN)/python -m web.conform

slow-clients: $(VENV)/.dev ## slow clients against serve, the health port and the mounted application; COUNT=499 SECONDS=45 choose
	@COUNT="$(COUNT)" SECONDS="$(SECONDS)" PYTHONPATH=tests $(BIN)/python -m security.slow_clients

audit-parsers: $(VENV)/.dev ## how the time of every parser that sees input grows with its text
	@PYTHONPATH=tests $(BIN)/python -m security.parsers

requirements: $(VENV)/.dev ## write requirements/*.txt and constraints.txt: versions and hashes; UPGRADE=1 takes the newest
	@$(BIN)/python -m tools.requirements $(if $(UPGRADE),--upgrade)

docs: $(VENV)/.dev ## the documentation as a site in site/; fails on a dead link, or on anything fetched from elsewhere
	@$(BIN)/python -m tools.docs --site

docs-pages: $(VENV)/.dev ## write the pages that are made from the code, the navigation and llms.txt
	@$(BIN)/python -m tools.docs

stubs: $(VENV)/.dev ## write src/pgqrs/blocking.pyi from the async API
	@$(BIN)/python -m tools.blocking_stub

bench: $(VENV)/.dev ## our speed on both databases, and the limits, in .bench/benchmarks.md; WHAT=drain,runs_10 ON=sqlite ROUNDS=3 choose
	@WHAT="$(WHAT)" ON="$(ON)" ROUNDS="$(ROUNDS)" $(BIN)/python -m benchmarks ours

bench-peers: $(VENV)/.dev ## ours and the peers in turns; PEERS=dbos,pgqueuer chooses, WHAT, ON and ROUNDS as above
	@WHAT="$(WHAT)" ON="$(ON)" ROUNDS="$(ROUNDS)" PEERS="$(PEERS)" $(BIN)/python -m benchmarks peers

bench-report: $(VENV)/.dev ## publish what was measured here: benchmarks/results and docs/reference/benchmarks.md
	@$(BIN)/python -m benchmarks report

proof: $(VENV)/.dev ## crash it everywhere, briefly, and print the table; LAYERS="crash model" ON=sqlite FULL=1 MINUTES=10 SEED=7 choose
	@ON="$(ON)" FULL="$(FULL)" MINUTES="$(MINUTES)" SEED="$(SEED)" COUNT="$(COUNT)" $(BIN)/python -m proof $(LAYERS)

soak: $(VENV)/.dev ## chaos with real processes on PostgreSQL and SQLite, recovery times, failover; MINUTES=10 ON=postgres SEED=7 choose
	@ON="$(ON)" FULL=1 MINUTES="$(or $(MINUTES),10)" SEED="$(SEED)" $(BIN)/python -m proof chaos

long: $(VENV)/.dev ## long checks: 10,000 messages by 8 processes, 100,000 values per backend, 20 x 12 installations
	PGQRS_SOAK=1 $(BIN)/python -m pytest -n 0 tests/behaviour/test_processes.py tests/behaviour/test_schedule_processes.py tests/unit/test_cron.py tests/properties tests/db/test_migrations.py tests/faults/test_dispatcher_processes.py $(ARGS)

pgbouncer: $(VENV)/.dev ## the behaviour suite on PostgreSQL behind a PgBouncer in transaction mode
	PGQRS_TEST_PGBOUNCER=1 $(BIN)/python -m pytest -n $(JOBS) tests/behaviour -k postgres $(ARGS)

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
