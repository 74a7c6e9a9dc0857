# SPDX-License-Identifier: Apache-2.0
"""Storage tiers: one file says what they are; Ceph, Cinder and Trove are made to match it.

The file is read by :mod:`tiers_file` into :mod:`model`; :mod:`desired` derives from it the
resources that should exist, the adapters :mod:`ceph`, :mod:`cinder` and :mod:`trove` observe those
that do, and :mod:`planning` compares the two. What it finds is shown by :mod:`render` and carried
out by :mod:`apply`.
"""
