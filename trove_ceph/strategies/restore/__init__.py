# SPDX-License-Identifier: Apache-2.0
"""Making the volume of a new instance from a backup.

:mod:`planning` says from where, or why not, before anything is made. Within its pool Cinder clones
the backup's snapshot, as it does for Trove. From the vault, or to another tier, it is cloned by the
storage service and made a volume by :mod:`restoring`; :mod:`independence` parts such volumes from
what they read, while they are used. What becomes of the data is the guest agent's affair
(:mod:`trove_ceph.guestagent.restored_server`).
"""
