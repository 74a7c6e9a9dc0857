# SPDX-License-Identifier: Apache-2.0
"""The adapter to Ceph, the only package that imports ``rados`` and ``rbd``."""
