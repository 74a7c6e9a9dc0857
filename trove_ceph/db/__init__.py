# SPDX-License-Identifier: Apache-2.0
"""What the services of trove_ceph remember, in tables of their own in Trove's database.

:mod:`tables` has the tables, :mod:`migration` makes them, and :mod:`records`, with what belongs to
it, is how everybody else reads and writes those of backups.
"""
