# SPDX-License-Identifier: Apache-2.0
"""Find and remove orphans: images, snapshots, volumes and records that nothing refers to.

:mod:`inventory` lists what exists, :mod:`references` what refers to it, and :mod:`orphan_rules`
decides what is an orphan. :mod:`collector` checks an orphan again and removes it.
"""
