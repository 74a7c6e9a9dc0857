# SPDX-License-Identifier: Apache-2.0
"""The storage service: the one process that holds a Ceph key."""
