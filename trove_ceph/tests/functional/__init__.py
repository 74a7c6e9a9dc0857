# SPDX-License-Identifier: Apache-2.0
"""Tests with a real Ceph and a real MySQL on this machine, independent of its other processes."""
