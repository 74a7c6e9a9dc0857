# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage``: one module per group of commands."""
