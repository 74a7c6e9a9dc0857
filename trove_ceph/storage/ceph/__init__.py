# SPDX-License-Identifier: Apache-2.0
"""The adapter to Ceph: nothing else in trove_ceph imports ``rados`` and ``rbd``."""
