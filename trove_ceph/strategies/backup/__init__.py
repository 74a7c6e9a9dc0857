# SPDX-License-Identifier: Apache-2.0
"""Create, copy, verify and delete backups, and delete instances that have backups.

:mod:`create`, :mod:`vault_copy`, :mod:`verify`, :mod:`delete` and :mod:`instance_deletion` hold the
steps. :mod:`queue_worker` runs the requested copies and verifications, and :mod:`volume_cleanup`
frees the space of what remains. :mod:`dependencies` declares the clients that they use; nothing
here knows Trove or the message bus.
"""
