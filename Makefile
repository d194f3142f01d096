# Everything a developer runs. Each target does its own set-up: a bare machine with Python 3.11+, a JDK 17 and make is enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
CLASSES := $(VENV)/spark-classes.jsa
PYTEST ?= $(BIN)/pytest
# Markers of the tests that `make test` leaves to `make test-full`, joined by "or".
SLOW   := cluster or slow

# The tests start hundreds of Pythons: each would compile all that it imports where nothing compiled may be kept. What is
# never imported, most of the dependencies, is not compiled (--no-compile below).
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup bridge demo test test-full test-oldest coverage test-partitioned check docs format soak bench lock clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

setup: $(STAMP) bridge ## make .venv with the locked dependencies, the package itself and the jar of the Spark bridge

# The stamp is younger than the lock and pyproject.toml, so a second `make setup` does nothing.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version) if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

# Looks at the sources each time, and compiles only when they have changed.
bridge: $(STAMP)
	@$(BIN)/python bridge/build.py

# Classes of Spark and Delta as the JVM holds them in memory: each Spark of the tests starts in half the CPU time. They do
# without it where this fails.
$(CLASSES): $(STAMP)
	@$(BIN)/python -m tests.fixtures.spark_classes $@ >/dev/null 2>&1 || echo "no archive of Spark's classes was made"

demo: setup ## a tour of the catalog, a nightly star-schema load on Spark, then a Postgres captured live
	@$(BIN)/python examples/demo.py
	@$(BIN)/python examples/nightly_star_schema.py
	@$(BIN)/python -m examples.capture_orders

# A RAM disk with room for the tests' databases and tables, if there is one: SQLite and the mirror wait for the disk at
# every commit. TMPDIR in the environment wins.
RAM_DISK := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 8000000 {print "/dev/shm"}')
# Prepares a folder for temporary files that goes when the recipe ends, and a file for the output of a second process.
SCRATCH = export TMPDIR=$$(mktemp -d "$${TMPDIR:-$(or $(RAM_DISK),/tmp)}/dltests-XXXXXX"); \
	trap 'rm -rf "$$TMPDIR"' EXIT; trap 'kill $$spark 2>/dev/null; exit 130' INT TERM; log="$$TMPDIR/spark.log"
# The slowest tests are named at the end: what to look at first when the suite has grown.
SLOWEST := --durations=25 --durations-min=5
# Exit code 5: ARGS chose no test of a kind.
FAIL_IF_RED = for code in $$codes; do test $$code -eq 0 || test $$code -eq 5 || exit $$code; done

# Tests that need a JVM share two Sparks, beside three processes for all others, which also wait for disks and servers.
test: setup $(CLASSES) ## the suite on SQLite, DuckDB, Postgres, S3 and Spark, without the slow groups
	@$(SCRATCH); \
	$(PYTEST) -m "spark and not ($(SLOW))" -n 2 --dist loadgroup --no-loadscope-reorder $(SLOWEST) $(ARGS) >"$$log" 2>&1 & spark=$$!; \
	$(PYTEST) -m "not spark and not ($(SLOW))" -n 3 --dist loadfile --no-loadscope-reorder $(SLOWEST) $(ARGS); codes=$$?; \
	wait $$spark; codes="$$codes $$?"; cat "$$log"; $(FAIL_IF_RED)

# As `make test`, with the slow groups; the cluster follows the tests without a JVM, which end first.
test-full: setup $(CLASSES) ## `make test` and the slow groups: a Spark cluster, statements compared with plain delta-spark, all golden tables
	@$(SCRATCH); \
	$(PYTEST) -m "spark and not cluster" -n 2 --dist loadgroup --no-loadscope-reorder $(SLOWEST) $(ARGS) >"$$log" 2>&1 & spark=$$!; \
	$(PYTEST) -m "not spark and not cluster" -n 3 --dist loadfile --no-loadscope-reorder $(SLOWEST) $(ARGS); codes=$$?; \
	$(PYTEST) -m cluster $(SLOWEST) $(ARGS); codes="$$codes $$?"; \
	wait $$spark; codes="$$codes $$?"; cat "$$log"; $(FAIL_IF_RED)

# Dependencies of the package at the lower ends of their ranges, what judges and runs the tests as locked. The tests that
# need no server: the pure code, and the store's main behaviour on SQLite.
OLDEST := build/oldest
TOOLS  := boto3|deltalake|flask|flask-cors|hatchling|hypothesis|moto|polars|pytest
OLDEST_TESTS := test_appends test_lossless test_planning test_transaction test_transaction_writes test_mirror_engine
test-oldest: setup ## unit tests and some conformance tests on the oldest supported versions of the dependencies
	@mkdir -p build
	$(BIN)/uv pip compile pyproject.toml --extra all --resolution lowest-direct --no-header --no-annotate --quiet --upgrade --output-file $(OLDEST).txt
	sed -nE 's/^(($(TOOLS))==[^ ]+).*/\1/p' requirements.lock >$(OLDEST)-tools.txt
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(OLDEST)
	$(BIN)/uv pip install --quiet --python $(OLDEST) --requirement $(OLDEST).txt --requirement $(OLDEST)-tools.txt 'pandas>=2.2.2' opentelemetry-sdk
	PYTHONPATH=src $(OLDEST)/bin/python -m pytest -m "not spark and not ($(SLOW))" -k "unit or sqlite" \
	  tests/unit $(OLDEST_TESTS:%=tests/conformance/%.py) $(ARGS)

# Lines and branches that the tests without a JVM or a server reach; the floor is in pyproject.toml. One test compares
# times, which the measurement changes.
coverage: setup ## what the unit tests and the conformance tests on SQLite cover, with a floor
	@mkdir -p build
	$(BIN)/coverage run -m pytest tests/unit tests/conformance -k "unit or sqlite" -m "not spark and not ($(SLOW))" \
	  --deselect tests/unit/test_telemetry.py::test_without_listeners_a_report_costs_less_than_writing_one_down $(ARGS)
	$(BIN)/coverage report

test-partitioned: setup ## the conformance suite on Postgres with hash-partitioned tables (docs/scale.md)
	DL_TEST_PARTITIONED=1 $(PYTEST) tests/conformance -k "postgres and not migrations and not create_its_schema" $(ARGS)

check: setup docs ## ruff, mypy --strict, and a strict build of the docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Without --quiet, which hides warnings from --strict. Material announces its successor on every run.
docs: setup ## the site of docs/ in build/site; fails on a broken link and on a page that is not in the navigation
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: setup ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

soak: setup ## property tests with many more examples, crash tests with many more kills
	HYPOTHESIS_PROFILE=soak $(PYTEST) -m "not spark and not cluster" $(ARGS)
	HYPOTHESIS_PROFILE=soak $(PYTEST) -m spark tests/faults tests/cdc tests/interop tests/spark tests/conformance $(ARGS)

bench: setup ## us and the peers on the same tables; ARGS=commits for the write path, ARGS="--files 1000000" for more
	$(BIN)/python -m bench $(ARGS)

lock: ## write requirements.lock anew from pyproject.toml (needs .venv)
	$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-annotate --no-header --quiet --output-file requirements.lock $(ARGS)
	@! grep -nE 'https?://|--index|--find-links' requirements.lock

clean: ## remove what the targets above made
	rm -rf $(VENV) src/deltalakedb/spark/jars .mypy_cache .pytest_cache .ruff_cache .hypothesis dist build spark-warehouse
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
