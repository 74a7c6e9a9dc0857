# SPDX-License-Identifier: Apache-2.0
"""Which instances are ours, and not Trove's own: by the guest agent, and by the volume."""

from collections.abc import Callable

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.strategies.backup import dependencies
from trove_ceph.trove_adapter import trove_db

LOG = logging.getLogger(__name__)


class Ownership:
    """Tells which instances are ours.

    :param get_deps: returns the dependencies of backups
    """

    def __init__(self, get_deps: Callable[[], dependencies.BackupDependencies]):
        self._get_deps = get_deps

    def backs_up(self, instance_id: str) -> bool:
        """Return whether backups of an instance are ours: by its guest agent, and by its volume."""
        instance = trove_db.TroveDatabase().find_instance(instance_id)
        has_our_agent = instance is None or instance.has_our_guest_agent
        return has_our_agent and self.is_on_tier(instance_id)

    def is_on_tier(self, instance_id: str) -> bool:
        """Return whether an instance's volume is on one of the tiers.

        True also if that cannot be determined: the operation then fails with the reason, instead
        of falling back to Trove's own.
        """
        instance = trove_db.TroveDatabase().find_instance(instance_id)
        if instance is None or instance.volume_id is None:
            return True
        try:
            volume = self._get_deps().cinder.find_volume(instance.volume_id)
            return volume is None or self._get_deps().find_image(volume) is not None
        except exceptions.TroveCephError as error:
            LOG.warning('The tier of instance %s cannot be determined: %s', instance_id, error)
            return True
