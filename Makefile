# Everything here works from a fresh checkout with make and Python alone: the first target that needs it
# makes an environment from the locks. Spark and the real RocketMQ also need a JDK >= 17; what needs one says so.
PYTHON ?= python3
BENCH_ARGS ?=
PYTEST_ARGS ?=
# Processes that run tests side by side: more than two processors need, because many tests wait for brokers
# and JVMs, whose stops pause for seconds. 0 runs tests in one process, for debuggers.
PYTEST_WORKERS ?= 5

bin := .venv/bin
uv := $(bin)/uv pip install --quiet --python $(bin)/python
# The demo needs less than the tests; it uses their environment where there is one.
demo := $(if $(wildcard .venv/ready),.venv,build/demo)
# A machine without a C compiler takes Zig's, from a lock of its own because it has 100 MB.
compiler := $(or $(filter environment,$(origin CC)),$(shell command -v cc || command -v gcc || command -v clang))
# What the compiled kernels are built from.
kernels := packaging/kernels.py $(wildcard src/rocketlens/formats/*.py src/rocketlens/formats/compiled/*.py \
	src/rocketlens/formats/compiled/*.h src/rocketlens/formats/compiled/device.pxd \
	src/rocketlens/formats/compiled/records.pxd)
mkdocs := mkdocs build --strict --quiet
# Bytecode is kept, whatever the environment says: tests start hundreds of processes, and each would
# compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=
# The theme prints an advertisement for its successor otherwise.
export NO_MKDOCS_2_WARNING := 1
# Processes get scopes one by one, each with many tests, so there is no percentage: tests/support/sharing.py.
shared := --numprocesses $(PYTEST_WORKERS) --dist load --maxschedchunk 1 --override-ini console_output_style=classic
pytest := $(bin)/python -m pytest $(shared)
# Tests that failed on a busy machine must pass alone.
once_more = echo "== once more, alone; a test that passes now should not have failed, so report it:" >&2 && \
	$(bin)/python -m pytest --last-failed --last-failed-no-failures none --maxfail 1 -m "not slow" $(PYTEST_ARGS)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-all coverage sanitize check format docs map bench release lock clean

help: ## Say what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(demo)/ready ## Find messages in a store that a real broker wrote, after rebuilding its index with Spark
	@$(demo)/bin/rocketlens demo

test: .venv/ready ## Run the tests, without the slow ones (add more with PYTEST_ARGS="-k name")
	@$(pytest) -m "not slow" $(PYTEST_ARGS) || { [ $$? -eq 1 ] && $(once_more); }

test-all: coverage sanitize ## Measure coverage, then run all tests, the slow ones too
	@$(pytest) --override-ini faulthandler_timeout=7200 --hypothesis-profile full $(PYTEST_ARGS)

sanitize: .venv/ready ## Run the tests of the kernels with sanitizers of memory and arithmetic (needs gcc)
	@$(bin)/python packaging/kernels.py --sanitize
	@PYTHONPATH=build/sanitize/src PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 \
		LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
		$(bin)/python -m pytest -q tests/unit/formats/compiled tests/property/test_kernels_hostile.py $(PYTEST_ARGS)

coverage: .venv/ready ## Measure what tests reach of each room, and fail below the floors of tests/support/coverage_floors.py
	@rm -rf build/coverage
	@$(bin)/python -m coverage run -m pytest $(shared) \
		-m "not slow and not peer" $(PYTEST_ARGS)
	@$(bin)/python -m tests.support.coverage_floors

check: .venv/ready ## Lint, formatting, types, which room may import which, and the documentation
	@failed=0; \
	for tool in "ruff check" "ruff format --check" mypy "lint-imports --no-logo" "$(mkdocs)"; do \
		echo "== $$tool" >&2; $(bin)/$$tool || failed=1; \
	done; exit $$failed

format: .venv/ready ## Format the code and mend what the linter can mend itself
	@$(bin)/ruff check --fix-only .
	@$(bin)/ruff format .

docs: .venv/ready ## Build the documentation as a site in build/site
	@$(bin)/$(mkdocs)
	@echo "open build/site/index.html"

map: ## Print the size of each room
	@$(PYTHON) docs/module_map.py

bench: .venv/ready ## Measure against the real RocketMQ (BENCH_ARGS="--help" for what can be chosen)
	@$(bin)/python -m bench $(BENCH_ARGS)

release: .venv/ready ## Write the version and build what is published into dist/: make release VERSION=0.2.0
	@$(bin)/python packaging/release.py "$(VERSION)"

lock: .venv/ready ## Pin the newest allowed version of every dependency again
	@set -e; compile="$(bin)/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
		--generate-hashes --no-header --no-emit-index-url --no-emit-find-links"; \
	$$compile --group installer -o requirements/installer.lock; \
	$$compile --group build -o requirements/build.lock; \
	$$compile --group compiler -o requirements/compiler.lock; \
	$$compile --group grpc -o requirements/grpc.lock; \
	$$compile --extra spark pyproject.toml -o requirements/demo.lock; \
	$$compile --group dev --group docs --extra spark --extra serve --extra decode --extra sql --extra archive \
		--extra rocksdb --extra console --extra mcp --extra polars pyproject.toml \
		-o requirements/dev.lock

clean: ## Remove .venv and everything made while building and testing
	rm -rf .venv build dist spark-warehouse metastore_db derby.log
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests bench docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# All packages come from the locks, checked by hash. The build tools come before the rest, because pyspark is
# published as source only and must be built with a known setuptools.
define environment
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and \
		"RocketLens needs Python 3.11 or newer, and $(PYTHON) is %d.%d: install a newer one, or name it: make PYTHON=python3.12" % v[:2])'
	@echo "Making $(1) from $(2); this takes about a minute, once." >&2
	@rm -rf $(1)
	@$(PYTHON) -m venv $(1)
	@$(1)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements/installer.lock
	@$(1)/bin/uv pip install --quiet --python $(1)/bin/python --require-hashes -r requirements/build.lock
	@[ -n "$(compiler)" ] || \
		$(1)/bin/uv pip install --quiet --python $(1)/bin/python --require-hashes -r requirements/compiler.lock
	@$(1)/bin/uv pip install --quiet --python $(1)/bin/python --require-hashes --no-build-isolation -r $(2)
endef

.venv/locked: requirements/installer.lock requirements/build.lock requirements/dev.lock
	$(call environment,.venv,requirements/dev.lock)
	@touch $@

.venv/installed: .venv/locked pyproject.toml
	@$(uv) --no-deps --no-build-isolation -e .
	@touch $@

.venv/ready: .venv/installed $(kernels)
	@$(bin)/python packaging/kernels.py
	@touch $@

build/demo/ready: requirements/installer.lock requirements/build.lock requirements/demo.lock pyproject.toml
	$(call environment,build/demo,requirements/demo.lock)
	@build/demo/bin/uv pip install --quiet --python build/demo/bin/python --no-deps --no-build-isolation .
	@touch $@
