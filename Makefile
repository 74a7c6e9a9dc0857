# SPDX-License-Identifier: Apache-2.0
SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help
help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---- tests -------------------------------------------------------------------------------------

.PHONY: test
test:  ## Unit and functional tests; installs what they need (root); ends in "N passed, N failed"
	@tools/run-tests

.PHONY: test-unit
test-unit:  ## Unit tests only
	@tools/run-tests py3

.PHONY: test-functional
test-functional:  ## Tests with a real Ceph and MySQL on this machine (root)
	@tools/run-tests functional

.PHONY: test-clean
test-clean:  ## Remove the environments and results of tests
	@rm -rf .tox .tox-bootstrap .stestr .coverage cover .mypy_cache .ruff_cache
