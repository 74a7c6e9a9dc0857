# SPDX-License-Identifier: Apache-2.0
"""Replicas as clones of their source.

A replica starts on a clone of a snapshot of its source's volume. The snapshot is taken while the
source serves, without a lock, and is what a power cut would leave. The data of the clone say which
transactions it has, so that the replica requests exactly those that follow.
"""
