# SPDX-License-Identifier: Apache-2.0
"""Automatic failover: find the servers that failed, and request their replacement.

Nothing here touches a server, a volume or a port. A request is all that leaves this package; the
replacement itself fences first, see :mod:`trove_ceph.strategies.replacement`.
"""
