# SPDX-License-Identifier: Apache-2.0
"""Block devices, file systems and confined processes of this host.

Used by the guest agent, and by inspections and benchmarks, which run a MySQL server with an RBD
image as its disk. Resources are context managers; the outermost is
:class:`~trove_ceph.host.workspace.Workspace`, which cleans up after a killed process.
"""
