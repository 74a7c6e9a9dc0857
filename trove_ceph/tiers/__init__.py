# SPDX-License-Identifier: Apache-2.0
"""Storage tiers: one file describes them, and Ceph, Cinder and Trove are changed to match it.

:mod:`tiers_file` reads the file into :mod:`tier_types`, and :mod:`desired` derives the resources
that should exist. The adapters :mod:`ceph`, :mod:`cinder` and :mod:`trove` observe those that do,
and :mod:`planning` compares the two. :mod:`render` prints the plan, and :mod:`apply` applies it.
"""
