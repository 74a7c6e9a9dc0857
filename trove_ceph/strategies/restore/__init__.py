# SPDX-License-Identifier: Apache-2.0
"""Create the volume of a new instance from a backup.

:mod:`planning` chooses the source, or refuses the restore, before anything is created. Within its
pool Cinder clones the backup's snapshot, as it does for Trove. From the vault, or to another tier,
:mod:`clone_volume` has the storage service clone it and Cinder manage the clone, and :mod:`flatten`
flattens such volumes while they are in use. The guest agent prepares the data
(:mod:`trove_ceph.guestagent.restored_server`).
"""
