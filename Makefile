# The one front door. `make` alone prints what there is; the work itself stands in local/.
SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON3 ?= /usr/bin/python3
HOSTS ?=
HOST ?=
UNIT ?=
SCENARIO ?= cluster
SEEDS ?= 1000
FIRST ?= 1
MINUTES ?= 30
SEED ?=
EFFORT ?= 50
LOCKS ?= $(wildcard requirements/connect/*.txt)

.PHONY: help setup doctor image hosts up status logs shell down distclean \
        test check sim sim-mutants chaos night unit fuzz interop suites molecule baremetal bench wheelhouse jars

help: ## print this list
	@printf 'pylog: a distributed log, deployed by Ansible\n\n'
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-11s %s\n", $$1, $$2 }'

setup: ## install what this machine lacks: Debian packages, .venv
	@local/setup.sh

doctor: ## check every need of the local cluster; exit 1 when one is not met
	@local/hosts/doctor.sh

image: setup ## build the hosts' base image (Debian 12, from Debian packages)
	@local/hosts/image.sh

hosts: image ## start the local hosts, nothing deployed on them (HOSTS="live1 live2": these only)
	@$(PYTHON3) -m local.hosts up $(HOSTS)

up: ## everything: hosts, secured cluster (SECURITY=none: open), data flowing through it, a closing screen
	@local/hosts/up.sh

status: ## hosts, units, ports and disks of the local cluster
	@$(PYTHON3) -m local.hosts status

logs: ## the journal of a host: HOST=live1 [UNIT=pylog-broker@1] [FOLLOW=1]
	@$(PYTHON3) -m local.hosts logs $(HOST) $(UNIT)

shell: ## a root shell on a host: HOST=live1
	@$(PYTHON3) -m local.hosts shell $(HOST)

down: ## remove the local cluster with its data; caches stay
	@local/hosts/down.sh

distclean: ## remove everything this checkout made: hosts, image, caches, .venv
	@local/hosts/down.sh distclean

sim: setup ## a simulated cluster: SEEDS=1000 runs with faults by lot from FIRST=1 on; stop it and go on as you like
	@local/test/sim.sh --first $(FIRST) --seeds $(SEEDS) --go-on --keep .local/sim

sim-mutants: setup ## each fault put into the code is found within SEEDS=1000 runs
	@local/test/sim.sh --mutants --seeds $(SEEDS)

chaos: setup ## real processes under faults for MINUTES=30; SEED=1 decides which; the result goes to docs/results
	@local/test/chaos.sh --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

night: setup ## a watched cluster that is broken in seven ways; the alerts go to docs/results
	@.venv/bin/python -m tests.cluster.night .local/night

test: ## all tests, with what they need
	@local/test/test.sh

check: ## ruff, mypy, commits, shellcheck, import layers, ansible-lint, yamllint
	@local/test/check.sh

unit: ## unit tests
	@local/test/pytest.sh unit tests/unit

fuzz: ## bytes at random for requests and files, EFFORT times what `make test` tries, other ones each time
	@PYLOG_FUZZ_EFFORT=$(EFFORT) local/test/pytest.sh fuzz tests/fuzz

interop: ## other people's clients against a broker
	@local/test/pytest.sh interop tests/interop

suites: ## integration suites of other projects; the result goes to docs/results
	@local/test/suites.sh

molecule: ## one Molecule scenario at full length: SCENARIO=cluster (see docs/handbook.md)
	@FULL=1 local/test/molecule.sh $(SCENARIO)

baremetal: ## virtual machines: real disks and kernel settings, a reboot, power cuts; the result goes to docs/results
	@local/test/baremetal.sh

bench: ## a benchmark, BENCH=paper unless told; results go to docs/bench and docs/results
	@local/test/bench.sh

wheelhouse: setup ## build the wheels that the hosts install, into .local/wheelhouse
	@$(PYTHON3) local/wheelhouse.py

jars: setup ## fetch the jars of Kafka Connect that LOCKS name, into .local/jars
	@.venv/bin/python -m pylog.ops.jars fetch .local/jars $(LOCKS)
