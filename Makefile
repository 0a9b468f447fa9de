# `make demo` and `make test` do everything, starting from a machine with Python 3.11, make and, unless they may
# install it, Java 17.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV   := .venv
BIN    := $(VENV)/bin
FLOOR  := .venv-floor
PEERS  := .peers
BROKER := .broker
READER := .reader
QUIET  := -m pip --disable-pip-version-check --no-input
PIP    := $(BIN)/python $(QUIET)
MAVEN  := mvn --quiet --batch-mode -Dmaven.wagon.rto=60000 -Daether.connector.requestTimeout=60000
JAVA   := openjdk-17-jre-headless
POSTGRES := postgresql
# One more than there are cores: many tests wait for processes that they started.
JOBS   ?= $(shell echo $$(($$(nproc 2>/dev/null || echo 2) + 1)))
SEED   ?=
CYCLES ?= 200
LONG   ?=
NAME   ?= commits metadata read idle simulator scan upsert lookup floor streaming digest \
          compaction overhead recovery determinism throughput replay replicas \
          kafka_kills kafka_throughput empty_transaction
WITH_PEERS := upsert floor throughput kafka_throughput
WITH_BROKER := throughput kafka_kills kafka_throughput empty_transaction
ARGS   ?=
COMPILE := build/lock/bin/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --no-header \
           --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host

# Set PYTHON to choose the interpreter; otherwise the first of these that is new enough.
PYTHON ?=
PYTHONS := python3.11 python3.12 python3.13 python3.14 python3

# Tests that share a Spark session share a worker, and so a JVM; the others go where there is room.
PYTEST := -m pytest -n $(JOBS) --dist loadgroup --durations=20

.PHONY: help setup java maven check unit test slow floor simulate chaos bench peers broker postgres demo lock clean

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: java $(VENV)/.ready  ## create .venv with everything that the other targets need

check: setup  ## ruff, mypy strict, import contracts and house rules; seconds
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -q -p no:randomly tests/test_tidy.py tests/test_public_api.py

unit: setup  ## fast tests only: no many-seed simulation, no real processes, no Spark, no broker, no database
	@$(BIN)/python $(PYTEST) -m "not simulation and not process and not chaos and not spark and not cluster and not kafka and not postgres and not slow" $(ARGS)

test: check $(FLOOR)/.ready $(READER)/.ready broker postgres  ## everything that must pass before a change lands
	@$(BIN)/python $(PYTEST) -m "not slow" $(ARGS)
	$(MAKE) floor ARGS="-m floor"

slow: setup $(READER)/.ready broker postgres  ## the long tests that `make test` leaves out
	@$(BIN)/python $(PYTEST) -m slow $(ARGS)

floor: setup $(FLOOR)/.ready  ## the tests of Spark, on the oldest Spark that we support
	@$(FLOOR)/bin/python -m pytest tests/spark $(ARGS)

simulate: setup  ## replay one simulated history with its trace: make simulate SEED=7
	@$(BIN)/python -m pytest -m simulation -s $(if $(SEED),--seed $(SEED)) $(ARGS)

chaos: setup broker postgres  ## kill -9 of real processes under load: make chaos CYCLES=200 LONG=1
	@$(BIN)/python benchmarks/chaos.py --cycles $(CYCLES) $(if $(SEED),--seed $(SEED)) $(ARGS)
	$(BIN)/python benchmarks/replicas.py --cycles $(if $(LONG),$(CYCLES),20) $(if $(SEED),--seed $(SEED))
	$(BIN)/python benchmarks/replay.py $(if $(LONG),--engine arrow,--quick) $(if $(SEED),--seed $(SEED))
	$(BIN)/python benchmarks/kafka_kills.py $(if $(LONG),--messages 300000 --kills 150) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m pytest tests/kills -m slow --cycles $(if $(LONG),$(CYCLES),5) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m pytest tests/scenarios/test_s78_postgres.py -m slow --cycles $(if $(LONG),$(CYCLES),20) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m pytest tests/spark/test_cluster.py -m slow -k cycles --cycles $(if $(LONG),$(CYCLES),5) $(if $(SEED),--seed $(SEED))

bench: java $(VENV)/.ready-bench $(if $(filter $(WITH_PEERS),$(NAME)),peers) $(if $(filter $(WITH_BROKER),$(NAME)),broker)  ## the benchmarks, all or one: make bench NAME=commits
	@for name in $(NAME); do echo "== $$name"; $(BIN)/python benchmarks/$$name.py $(ARGS); done

peers: $(PEERS)/.ready  ## what the benchmarks stand beside and that has a Spark of its own (Delta, Spark's Kafka source and sink)

broker: $(BROKER)/.ready  ## a real Kafka broker for the tests; only CI insists on it

postgres:  ## a real PostgreSQL for the tests, from Debian's package; only CI insists on it
	@there() {
	    for program in $$(command -v postgres || true) /usr/lib/postgresql/*/bin/postgres; do
	        if [ -x "$$program" ] && [ -x "$${program%postgres}initdb" ]; then return 0; fi
	    done
	    return 1
	}
	if there; then exit 0; fi
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	    echo "setup: tests of the PostgreSQL sink need a server; installing $(POSTGRES)"
	    # Without a cluster of its own, which would be started at once; what is installed later gets one as ever.
	    main=/etc/postgresql-common/createcluster.d/strandline.conf
	    trap 'rm -f "$$main"' EXIT
	    mkdir -p "$${main%/*}" && echo "create_main_cluster = false" > "$$main" &&
	        apt-get update -qq </dev/null &&
	        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(POSTGRES) </dev/null >/dev/null || true
	    if there; then exit 0; fi
	fi
	if [ "$${CI:-}" = true ]; then
	    echo "setup: THERE IS NO POSTGRESQL, and CI requires it. Install it (sudo apt-get install $(POSTGRES))." >&2
	    exit 1
	fi
	echo "setup: THERE IS NO POSTGRESQL on this machine. Install it (sudo apt-get install $(POSTGRES))." >&2
	echo "       The tests that need it will be SKIPPED, and named at the end of the run." >&2

demo: setup  ## two replicas, one killed, one history: the main job, shown in a minute
	@$(BIN)/python examples/demo.py $(ARGS)

lock: setup  ## pin the newest versions that fit pyproject.toml (needs the network)
	@$(BIN)/python -m venv build/lock
	build/lock/bin/pip install --quiet pip-tools
	note="by version and hash. Made by \`make lock\`; do not edit."
	$(COMPILE) --extra test --extra testing -o build/setup.lock pyproject.toml
	{ echo "# Every package that \`make setup\` installs, $$note"; cat build/setup.lock; } > requirements.lock
	echo "pyspark[connect]>=4.2" > build/spark.in
	$(COMPILE) -c requirements.lock -o build/spark.lock build/spark.in
	{ echo "# What Spark adds to requirements.lock, $$note"; cat build/spark.lock; } > requirements-spark.lock
	echo "pyspark==4.2.0" > build/floor.in
	$(COMPILE) -o build/floor.lock build/floor.in
	{ echo "# The oldest Spark that we support, $$note"; cat build/floor.lock; } > requirements-floor.lock
	printf 'duckdb<2\nduckdb-extensions\nduckdb-extension-avro\nduckdb-extension-iceberg\n' > build/reader.in
	$(COMPILE) -o build/reader.lock build/reader.in
	{ echo "# DuckDB with its own reader of Iceberg, for the tests, $$note"; cat build/reader.lock; } > requirements-reader.lock
	$(COMPILE) --extra bench -c requirements.lock -c requirements-spark.lock -o build/bench.lock pyproject.toml
	{ echo "# Every package that \`make bench\` needs, $$note"; cat build/bench.lock; } > requirements-bench.lock

clean:  ## remove what setup and the tools made
	@rm -rf $(VENV) $(FLOOR) $(PEERS) $(BROKER) $(READER) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# The network is needed here and nowhere else: tests, demo and benchmarks run without it.
# Spark comes as source: it is built by the locked setuptools, hence apart from it and after it.
$(VENV)/.ready: pyproject.toml requirements.lock requirements-spark.lock | $(BIN)/python
	@echo "setup: installing the locked packages into $(VENV) (Spark is 450 MB)"
	$(PIP) install --quiet --require-hashes -r requirements.lock
	$(PIP) install --quiet --require-hashes --no-deps --no-build-isolation --use-pep517 -r requirements-spark.lock
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/.ready-bench: requirements-bench.lock $(VENV)/.ready
	@echo "setup: installing the systems that the benchmarks compare with"
	$(PIP) install --quiet --require-hashes -r requirements-bench.lock
	touch $@

# Only Spark is another one here: everything else is found in the first environment.
$(FLOOR)/.ready: requirements-floor.lock $(VENV)/.ready
	@echo "setup: installing the oldest supported Spark into $(FLOOR)"
	rm -rf $(FLOOR)
	$(BIN)/python -m venv --without-pip $(FLOOR)
	here='import sysconfig; print(sysconfig.get_path("purelib"))'
	from=$$($(BIN)/python -c "$$here")
	into=$$($(FLOOR)/bin/python -c "$$here")
	$(PIP) install --quiet --require-hashes --no-deps --no-build-isolation --use-pep517 --target "$$into" -r requirements-floor.lock
	echo "import site; site.addsitedir('$$from')" > "$$into/first.pth"
	touch $@

# DuckDB's extensions come as packages for some of its versions only, so this is another DuckDB.
$(READER)/.ready: requirements-reader.lock $(VENV)/.ready
	@echo "setup: installing a DuckDB that reads Iceberg into $(READER)"
	rm -rf $(READER)
	$(PIP) install --quiet --require-hashes --no-deps --target $(READER) -r requirements-reader.lock
	touch $@

# Delta and Spark's Kafka source are jars for the Spark that they were built for, which happens to be our oldest one.
$(PEERS)/.ready: benchmarks/peers/pom.xml requirements-floor.lock | java maven $(VENV)/.ready
	@echo "setup: installing Delta and its Spark into $(PEERS)"
	rm -rf $(PEERS)
	$(BIN)/python -m venv --without-pip $(PEERS)/venv
	into=$$($(PEERS)/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	$(PIP) install --quiet --require-hashes --no-deps --no-build-isolation --use-pep517 --target "$$into" -r requirements-floor.lock
	$(MAVEN) --file benchmarks/peers/pom.xml dependency:copy-dependencies \
	    -DincludeGroupIds=io.delta,io.unitycatalog,org.apache.spark,org.apache.kafka,org.apache.commons -DoutputDirectory="$(CURDIR)/$(PEERS)/jars"
	touch $@

# Where it can't be fetched the tests that need it are skipped by name, except in CI: there that is a failure.
$(BROKER)/.ready: tests/broker/pom.xml | java
	@echo "setup: fetching the Kafka broker of the tests into $(BROKER)"
	rm -rf $(BROKER)
	if $(MAKE) maven && $(MAVEN) --file tests/broker/pom.xml dependency:copy-dependencies \
	    -DoutputDirectory="$(CURDIR)/$(BROKER)/jars"; then
	    touch $@
	elif [ "$${CI:-}" = true ]; then
	    echo "setup: THE KAFKA BROKER COULD NOT BE FETCHED, and CI requires it (see above for the reason)." >&2
	    exit 1
	else
	    rm -rf $(BROKER)
	    echo "setup: THE KAFKA BROKER COULD NOT BE FETCHED (see above for the reason)." >&2
	    echo "       The tests that need it will be SKIPPED, and named at the end of the run." >&2
	fi

maven:
	@if command -v mvn >/dev/null; then exit 0; fi
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	    echo "setup: jars are fetched by Maven; installing it"
	    apt-get update -qq </dev/null
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq maven </dev/null >/dev/null
	else
	    echo "setup: jars are fetched by Maven, and mvn is missing. Install it (sudo apt-get install maven)." >&2
	    exit 1
	fi

java:
	@if [ -n "$${JAVA_HOME:-}" ]; then program="$$JAVA_HOME/bin/java"; else program=java; fi
	said=$$("$$program" -version 2>&1 || true)
	major=$$(sed -nE 's/.* version "(1\.)?([0-9]+).*/\2/p' <<< "$$said" | head -n 1)
	if [ "$${major:-0}" -ge 17 ]; then exit 0; fi
	if [ -z "$${JAVA_HOME:-}" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	    echo "setup: Spark needs Java 17 or newer, and this machine has $${major:+only Java }$${major:-none}; installing $(JAVA)"
	    apt-get update -qq </dev/null
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(JAVA) </dev/null >/dev/null
	else
	    echo "setup: Spark needs Java 17 or newer, and $$program is $${major:+Java }$${major:-missing}." >&2
	    echo "       Install it (sudo apt-get install $(JAVA)), or set JAVA_HOME to one." >&2
	    exit 1
	fi

$(BIN)/python:
	@python="$(PYTHON)"
	if [ -z "$$python" ]; then
	    for candidate in $(PYTHONS); do
	        if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
	            python="$$candidate"; break
	        fi
	    done
	fi
	if [ -z "$$python" ]; then
	    found=$$(python3 --version 2>/dev/null || echo "no Python at all")
	    echo "setup: Strandline needs Python 3.11 or newer, and this machine has $$found." >&2
	    echo "       Install it (apt-get install python3.11 python3.11-venv) or name one: make PYTHON=/path/to/python" >&2
	    exit 1
	fi
	if ! "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
	    echo "setup: $$python is $$("$$python" --version 2>&1), and Strandline needs Python 3.11 or newer." >&2
	    exit 1
	fi
	if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then
	    package=$$("$$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
	    if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	        echo "setup: $$python cannot create environments; installing $$package"
	        apt-get update -qq </dev/null
	        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$$package" </dev/null >/dev/null
	    else
	        echo "setup: $$python cannot create environments. Run: sudo apt-get install $$package" >&2
	        exit 1
	    fi
	fi
	echo "setup: creating $(VENV) with $$("$$python" --version)"
	rm -rf $(VENV)
	"$$python" -m venv $(VENV)
