# SPDX-License-Identifier: Apache-2.0
"""Taking, copying, verifying and deleting backups, and deleting instances that have some.

:mod:`taking`, :mod:`copying`, :mod:`verifying`, :mod:`deleting` and :mod:`instance_deletion` have
the steps. :mod:`fulfilling` has those copied and verified of which that is wanted, and
:mod:`reclaiming` gives back the space of what is left. What they ask of others is in :mod:`tools`;
nothing here knows Trove or the bus.
"""
