# SPDX-License-Identifier: Apache-2.0
"""Enforcement of the IOPS and the throughput of a tier by limits of each volume's image.

:mod:`limits` computes the limits of a volume, :mod:`ownership` distinguishes our limits from those
of others, :mod:`planning` finds what differs, and :mod:`reconciler` corrects one volume or all.
:mod:`events` receives notifications of changed volumes from Cinder, and :mod:`service` runs the
reconciler in a service.
"""
