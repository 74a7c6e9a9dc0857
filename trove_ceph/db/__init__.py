# SPDX-License-Identifier: Apache-2.0
"""The records of trove_ceph, in tables of its own in Trove's database.

:mod:`tables` defines the tables and :mod:`migration` creates them. Other packages read and write
them through :mod:`backups` and :mod:`policies`.
"""
