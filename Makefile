# SPDX-License-Identifier: Apache-2.0
SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help
help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---- tests -------------------------------------------------------------------------------------

.PHONY: test
test:  ## Unit and functional tests; installs their dependencies (root); ends in "N passed, N failed"
	@tools/run-tests

.PHONY: test-unit
test-unit:  ## Unit tests only
	@tools/run-tests py3

.PHONY: test-functional
test-functional:  ## Tests with a real Ceph and MySQL (root); CEPH=18 or 20 for another than its own
	@tools/run-tests functional

.PHONY: test-long
test-long:  ## The long suite, of which "make test" runs one share each day (root)
	@TROVE_CEPH_TEST_SUITE=long tools/run-tests functional

.PHONY: test-clean
test-clean:  ## Remove the environments and results of tests
	@rm -rf .tox .tox-bootstrap .tox-ceph-* .stestr .coverage cover .mypy_cache .ruff_cache

# ---- the lab -----------------------------------------------------------------------------------

# LAB_PROFILE=hci, LAB_RELEASE=2026.1: see doc/source/contributor/lab.rst.
ifdef LAB_PROFILE
export TROVE_CEPH_LAB_PROFILE := $(LAB_PROFILE)
endif
ifdef LAB_RELEASE
export TROVE_CEPH_LAB_RELEASE := $(LAB_RELEASE)
endif

.PHONY: lab
lab:  ## The whole cloud on this machine, with a MySQL database in it (root); rerun to recover
	@lab/bin/lab up

.PHONY: lab-check
lab-check:  ## Check whether this machine can run the lab; changes nothing
	@lab/bin/lab check

.PHONY: lab-status
lab-status:  ## Show every process, Ceph, the endpoints and the databases
	@lab/bin/lab status

.PHONY: lab-env
lab-env:  ## Print shell exports: eval "$$(make -s lab-env)"; IDENTITY=admin for the administrator's
	@lab/bin/lab env --as $(or $(IDENTITY),tenant)

.PHONY: scenario
scenario:  ## Tempest's scenarios on a running lab; ARGS='--smoke', --ours, --theirs or a REGEX
	@lab/bin/lab scenario $(ARGS)

.PHONY: tutorial
tutorial:  ## The commands of the tenant's tutorial on a running lab; ARGS=--record writes its output
	@lab/bin/lab tutorial $(ARGS)

.PHONY: bench
bench:  ## A benchmark of five minutes on a running lab; ARGS='PLAN' for another
	@lab/bin/lab bench $(ARGS)

.PHONY: fault-injection
fault-injection:  ## Kill services at random on a running lab; ARGS='--rounds 30 --seed 7'
	@lab/bin/lab fault-injection $(ARGS)

.PHONY: lab-down
lab-down:  ## Stop everything; the data stays
	@lab/bin/lab down

.PHONY: lab-clean
lab-clean:  ## Stop everything; remove loop devices, bridges, mounts, data; keep benchmarks
	@lab/bin/lab clean
