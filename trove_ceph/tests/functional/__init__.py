# SPDX-License-Identifier: Apache-2.0
"""Tests with a real Ceph and a real MySQL on this machine, beside whatever else runs on it."""
