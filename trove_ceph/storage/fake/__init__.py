# SPDX-License-Identifier: Apache-2.0
"""A cluster in memory that keeps the contract of storage, for tests that need no Ceph."""
