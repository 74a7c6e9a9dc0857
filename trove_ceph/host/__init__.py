# SPDX-License-Identifier: Apache-2.0
"""A MySQL server of one's own on this host, and an RBD image as its disk.

For work that needs a real server beside those that serve tenants, such as benchmarks. Everything
here is a context manager; :class:`~trove_ceph.host.workspace.Workspace` is the outermost one,
and finds again what a killed owner left.
"""
