# SPDX-License-Identifier: Apache-2.0
"""Adoption: Cinder manages the snapshots and clones that trove_ceph creates with librbd.

:mod:`snapshots` and :mod:`volumes` have the steps that create and adopt them, :mod:`deletion` the
steps that delete a volume without leftovers, and :mod:`checks` the checks before them. Only
:mod:`client` sends requests to Cinder. Ceph is reached by the verbs of :mod:`trove_ceph.storage`.
"""
