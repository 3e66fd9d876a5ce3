# `make demo` and `make test` need only Python 3.11 to 3.14 and make. They create their own environment in .venv, with
# uv if it is installed, otherwise with venv and pip. Stamp files in .venv skip the installation the next time.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
UV := $(shell command -v uv 2>/dev/null)
# LONG=1 also runs the tests marked `long`. ARGS goes to the tool unchanged: make test ARGS='-k log'
MARK := $(if $(LONG),, and not long)
ARGS ?=
KILLS ?= 100
SEED ?= 1
JOBS ?= 1
SEEDS ?= 200
ROUNDS ?= 10

define FIND_PYTHON
for name in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11 python; do \
    path=$$(command -v $$name 2>/dev/null) || continue; \
    "$$path" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null || continue; \
    echo "$$path"; break; \
done
endef

ifdef UV
INSTALL = VIRTUAL_ENV=$(abspath $(VENV)) $(UV) pip install --quiet
else
INSTALL = $(PY) -m pip install --quiet --disable-pip-version-check
endif

.PHONY: help env demo docs test abuse fuzz fuzz-decoders mutants deploy image check bench bench-client bench-streams bench-streams-state bench-cluster streams-kills sim scenes world chaos broken crash interop kerberos interop-cluster suites wander fmt clean

help:
	@echo 'make demo           a node, a real data set and a Streams program on Spark, every result checked and plotted'
	@echo 'make test           the tests that need only Python (LONG=1: the long ones too)'
	@echo 'make check          format, lint, types, import layers, tests of the source itself'
	@echo 'make docs           the site in build/docs, links and navigation checked'
	@echo 'make fmt            format, and fix what ruff can fix'
	@echo 'make env            the environment of all of these, in $(VENV)'
	@echo 'make clean          remove everything that these created, the environment included'
	@echo
	@echo 'make interop        other implementations against a node (SHORT=1: without the Python clients; LONG=1: all)'
	@echo 'make interop-cluster  clusters and quorums of Ottla and Apache Kafka together (half an hour)'
	@echo 'make suites         the test suites of franz-go, sarama, librdkafka, Trogdor and Python clients (an hour)'
	@echo 'make wander         random histories beside Apache Kafka, every reply compared (SEEDS=1-100 FAMILY=admin)'
	@echo 'make deploy         the files in packaging/, checked by hadolint, the schemas of Kubernetes and systemd'
	@echo 'make image          the image built with podman or docker, both compose files run (ARGS=--debian-base)'
	@echo
	@echo 'make sim            storage and whole nodes on simulated machines that crash (SEEDS=200)'
	@echo 'make scenes         text scenes of the quorum, controller, replicas and transactions (REWRITE=1 rewrites their'
	@echo '                    traces), and random histories of the quorum (SEEDS=200)'
	@echo 'make world          nodes and clients on simulated hosts; links and clocks fail'
	@echo '                    (SEEDS=50 FIRST=1 PROFILE=replicated; JOBS=2 in parallel; RESUME=1 continues, RESUME=any'
	@echo '                    leaves out what ran at other commits, too; SEEDS=1 HISTORY=file.edn with PROFILE=replicated'
	@echo '                    or ten-minutes)'
	@echo 'make crash          kill a node under load again and again (KILLS=100 SEED=1; JOBS=2 in parallel, RESUME=1 continues)'
	@echo 'make streams-kills  kill Streams programs and the node under them (KILLS=100 SEED=1; NODES=3: a cluster; RESUME=1)'
	@echo 'make chaos          three nodes as processes: cut off, killed, paused, disks full (needs root;'
	@echo '                    MINUTES=5 SEED=1 NODES=ottla FAULTS= HISTORY=file.edn)'
	@echo 'make broken         brokers with planted bugs, which the checkers must find (REAL=1: in real processes)'
	@echo 'make abuse          hostile clients, with limits of time: run it on a machine at rest'
	@echo 'make fuzz           the tests with random examples, different ones in every round (ROUNDS=10)'
	@echo "make fuzz-decoders  damaged bytes for every decoder; continues where it stopped (INPUTS=1000000 DECODER='batch')"
	@echo "make mutants        plant bugs one by one; a test must catch each (ARGS='--package log --sample 10 --resume')"
	@echo
	@echo 'make bench          beside Apache Kafka, and our client beside others; tables go to bench/results (ROWS=...)'
	@echo 'make bench-client   only our client beside confluent-kafka and aiokafka'
	@echo 'make bench-cluster  three nodes beside three of Apache Kafka (ARGS=--short: one round, some six minutes)'
	@echo 'make bench-streams  Streams programs beside Kafka Streams and PySpark, an hour or two (ARGS=--short: ten minutes)'
	@echo 'make bench-streams-state  the cost of a state of 1 and 10 million keys (ARGS=--short: 200,000 keys)'

$(PY):
	@python="$$($(FIND_PYTHON))"; \
	if [ -n "$(UV)" ]; then \
	    echo "ottla: creating $(VENV) with uv"; $(UV) venv --quiet --allow-existing $${python:+--python "$$python"} $(VENV); \
	elif [ -n "$$python" ]; then \
	    echo "ottla: creating $(VENV) with $$python"; \
	    "$$python" -m venv $(VENV) || { rm -rf $(VENV); echo "ottla: $$python lacks the module venv: install it (Debian: apt-get install python3-venv)"; exit 1; }; \
	else \
	    echo 'ottla: no Python 3.11 to 3.14 found: install one, or name one with make PYTHON=/path/to/python'; exit 1; \
	fi

$(VENV)/.demo: pyproject.toml | $(PY)
	@echo 'ottla: installing what the demo needs'
	@$(INSTALL) -e '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(PY)
	@echo 'ottla: installing what the tests and tools need'
	@$(INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.demo

$(VENV)/.docs: pyproject.toml | $(PY)
	@echo 'ottla: installing what the site needs'
	@$(INSTALL) -e '.[docs]'
	@touch $@

env: $(VENV)/.dev

demo: $(VENV)/.demo
	@$(PY) -m examples.flights $(ARGS)

test: $(VENV)/.dev
	@$(PY) -m pytest -q -m 'not interop and not abuse$(MARK)' $(if $(LONG),--hypothesis-profile=random) $(ARGS)

# `make test` uses the same random examples every time; `make fuzz` uses new ones in every round.
fuzz: $(VENV)/.dev
	@for round in $$(seq $(ROUNDS)); do \
	    $(PY) -m pytest -q -m 'hypothesis and not interop' --hypothesis-profile=random $(ARGS); \
	done

# INPUTS per decoder, DECODER=part of a name, ARGS='--seed 2'. build/fuzz holds the progress of each decoder.
INPUTS ?= 1000000
fuzz-decoders: $(VENV)/.dev
	@$(PY) -m tests.fuzz --inputs $(INPUTS) --decoder '$(DECODER)' $(ARGS)

# ARGS: '--package log', '--sample 10 --seed 3', '--cheap', '--resume'. Each planted bug has tests that must catch it.
mutants: $(VENV)/.dev
	@$(PY) -m tests.mutants $(ARGS)

# Kill Streams programs and their nodes with SIGKILL: every result must appear once. KILLS=n SEED=n RESUME=1.
streams-kills: $(VENV)/.dev
	@$(PY) -m tests.spark.kills $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED)) $(if $(NODES),--nodes $(NODES)) $(if $(RESUME),--resume) $(ARGS)

# What one client can do to the others, with limits of time: run it on a machine at rest.
abuse: $(VENV)/.dev
	@$(PY) -m pytest -q -s -m abuse tests/abuse $(ARGS)

# Only this target installs hadolint and the schemas of Kubernetes: they take 150 MB.
deploy: $(VENV)/.dev
	@$(INSTALL) -e '.[deploy]'
	@$(PY) -m tests.deploy.check

# Needs podman or docker, and the base image of packaging/docker/Dockerfile. Where no registry can be reached:
# ARGS=--debian-base makes a stand-in for it (needs root and debootstrap).
image: $(VENV)/.dev
	@$(INSTALL) -e '.[deploy]'
	@$(PY) -m tests.deploy.image $(ARGS)

check: $(VENV)/.dev
	@$(BIN)/ruff format --check --quiet . || { echo 'not formatted: run make fmt'; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/mypy --python-version $$(.ci/python --newest)
	@$(BIN)/lint-imports --no-logo
	@$(PY) -m pytest -q tests/tidy

# It works offline once the packages are installed. A page outside the navigation or a link without a target is an
# error.
docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet $(ARGS)
	@echo 'ottla: the site is in build/docs/index.html'

# SHORT=1 leaves out the scenes with Python clients, which `make test` runs.
interop: $(VENV)/.dev $(if $(LONG),kerberos)
ifdef SHORT
	@$(PY) -m tests.interop.toolchain
	@$(PY) -m pytest -q -m 'interop$(MARK)' tests $(ARGS)
else
	@OTTLA_INTEROP_RESULTS=tests/interop/RESULTS.md $(PY) -m pytest -q -m '$(if $(LONG),interop or not interop,not long)' tests/interop $(ARGS)
	@$(PY) -m pytest -q -m 'interop$(MARK)' --ignore=tests/interop tests $(ARGS)
endif

# Only the long forms test Kerberos, because pip compiles its library.
kerberos: $(VENV)/.dev
	@$(PY) -c 'import gssapi' 2>/dev/null || $(INSTALL) -e '.[kerberos]' || \
	    echo 'ottla: cannot build ottla[kerberos], so its tests will fail (Debian: apt-get install gcc libkrb5-dev)'

# `make interop` runs one cluster of each kind; this runs all.
interop-cluster: kerberos
	@$(PY) -m pytest -q -m interop tests/interop/mixed $(ARGS)

# `make interop LONG=1` runs short forms of these, because they take long and measure time.
suites: kerberos
	@$(PY) -m tests.interop.suite $(ARGS)

bench: $(VENV)/.dev
	@$(PY) -m bench $(foreach row,$(ROWS),--only $(row)) $(ARGS)
	@$(if $(ROWS),,$(PY) -m bench.client $(filter --quick,$(ARGS)))

bench-client: $(VENV)/.dev
	@$(PY) -m bench.client $(ARGS)

# Three nodes of Ottla beside three of Apache Kafka, on a machine at rest. ARGS=--short runs one round, some six
# minutes; ARGS=--quick only checks that the bench works.
bench-cluster: $(VENV)/.dev
	@$(PY) -m bench.cluster $(ARGS)

# Streams programs beside Kafka Streams' jar and PySpark. ARGS: '--quick', '--rounds 1 --kind rate --only stateless'.
bench-streams: $(VENV)/.dev
	@$(PY) -m bench.streams $(ARGS)

# ARGS=--short: 200,000 keys; ARGS='--keys 1000000': another number. It needs neither Spark nor Java.
bench-streams-state: $(VENV)/.dev
	@$(PY) -m bench.streams.state $(ARGS)

# Random histories on Apache Kafka and on a node. SEEDS=1-100 FAMILY=transaction,admin
wander: $(VENV)/.dev
	@$(PY) -m tests.interop.oracle.wander $(if $(filter-out file,$(origin SEEDS)),--seeds $(SEEDS)) $(if $(FAMILY),--family $(FAMILY)) $(ARGS)

sim: $(VENV)/.dev
	@$(PY) -m pytest -q -m 'not interop' tests/sim $(ARGS)
	@$(PY) -m tests.crash.seeds --seeds $(SEEDS)

scenes: $(VENV)/.dev
	@$(if $(REWRITE),for kind in raft.scene replica.scene txn.scene controller.played; do $(PY) -m tests.$$kind --rewrite; done)
	@$(PY) -m pytest -q $(wildcard tests/*/test_scenes.py) $(ARGS)
	@$(PY) -m tests.raft.random_history --seeds 1-$(SEEDS)

# HISTORY=file.edn writes the operations of one seed in the format of Jepsen's kafka workload.
world: $(VENV)/.dev
	@$(PY) -m tests.world --profile $(or $(PROFILE),alone) --seeds $(if $(filter-out file,$(origin SEEDS)),$(SEEDS),50) --first $(or $(FIRST),1) $(if $(RESUME),--resume $(if $(filter any,$(RESUME)),any,here) --once) --jobs $(JOBS) $(if $(HISTORY),--history '$(HISTORY)') $(ARGS)

# It uses network namespaces and needs root, iproute2, nftables and libfaketime. NODES=apache runs the same against
# Apache Kafka, HISTORY=file.edn writes all operations in the format of Jepsen's kafka workload, BROKEN=name plants a
# bug.
chaos: $(VENV)/.dev
	@$(PY) -m tests.chaos --minutes $(or $(MINUTES),5) --seed $(SEED) --nodes $(or $(NODES),ottla) --faults '$(FAULTS)' $(if $(HISTORY),--history '$(HISTORY)') $(if $(BROKEN),--broken '$(BROKEN)') $(ARGS)

# Bugs planted in a copy of the product: the checker of `make world` must find each.
# REAL=1 plants two of them in real processes (needs root, as `make chaos` does).
broken: $(VENV)/.dev
	@$(PY) -m tests.chaos.broken $(if $(REAL),--real) $(ARGS)

crash: $(VENV)/.dev
	@$(PY) -m tests.crash --kills $(KILLS) --seed $(SEED) --jobs $(JOBS) $(if $(RESUME),--resume) $(ARGS)

fmt: $(VENV)/.dev
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist demo-output
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
