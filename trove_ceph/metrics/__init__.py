# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus: of operations, of the tables, and of the Ceph cluster.

Modules that import prometheus_client are imported only by processes that export metrics, which have
it from an extra of the package.
"""
