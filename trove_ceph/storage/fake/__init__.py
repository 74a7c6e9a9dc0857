# SPDX-License-Identifier: Apache-2.0
"""A fake cluster that fulfils the contract of storage, for tests without Ceph."""
