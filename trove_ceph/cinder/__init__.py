# SPDX-License-Identifier: Apache-2.0
"""Snapshots and clones that trove_ceph makes with librbd become Cinder's.

:mod:`snapshots` and :mod:`volumes` have the steps by which they are made and adopted,
:mod:`deletion` those by which a volume goes so that nothing is left, :mod:`checks` what is refused
beforehand. :mod:`client` is the one place that speaks to Cinder; nothing here knows Ceph but by the
verbs of :mod:`trove_ceph.storage`.
"""
