# SPDX-License-Identifier: Apache-2.0
"""Holding each volume to the IOPS and the throughput of its tier, by limits of its image.

:mod:`limits` says what a volume is promised, :mod:`mark` how limits of ours are told from those of
others, :mod:`planning` what has to change for one volume, and :mod:`keeper` does it for one or for
all. :mod:`events` hears from Cinder which volumes changed; :mod:`agent` is all of it as a part of a
service, :mod:`cli` as a command.
"""
