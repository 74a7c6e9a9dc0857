# SPDX-License-Identifier: Apache-2.0
"""Tempest scenarios for MySQL databases on Ceph volumes."""
