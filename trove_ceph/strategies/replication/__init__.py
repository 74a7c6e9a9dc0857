# SPDX-License-Identifier: Apache-2.0
"""Replicas as clones of their source: created, watched, re-provisioned, promoted."""
