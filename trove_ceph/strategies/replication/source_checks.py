# SPDX-License-Identifier: Apache-2.0
"""Check that the volume of a source can be cloned while it serves."""

from trove_ceph import exceptions
from trove_ceph.storage import image_types
from trove_ceph.strategies.backup import quiesce_level
from trove_ceph.strategies.backup.dependencies import BackupDependencies


def check_depth(source_id: str, facts: image_types.ImageFacts, most: int) -> None:
    """Check that a clone does not read through too many images.

    :param facts: of the image of the source
    :param most: images above that of a replica
    :raises ReplicaRefusedError: it would
    """
    if facts.clone_depth >= most:
        raise exceptions.ReplicaRefusedError(
            f'instance {source_id}: has a volume that is a clone with {facts.clone_depth} images '
            f'above it, and a replica may have {most}; your operator can flatten the volume'
        )


def check_settings(deps: BackupDependencies, source_id: str) -> str | None:
    """Check that a snapshot of the serving source has all that was committed, with its GTIDs.

    Call it before and after the snapshot, and compare the answers.

    :returns: what changes with each change of the settings; None: it is not known
    :raises UnsafeSettingsError: it would not
    :raises GuestUnavailableError: the source does not serve
    """
    found = deps.guest(source_id).check_backup_settings()
    if found['reasons']:
        raise exceptions.UnsafeSettingsError(
            f'instance {source_id}: cannot be cloned while it serves: '
            f'{quiesce_level.describe(found["reasons"])}'
        )
    return found.get('settings_id')
