# SPDX-License-Identifier: Apache-2.0
"""Test cases for the contract of an interface, to be run with each of its implementations."""
