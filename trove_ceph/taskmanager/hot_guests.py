# SPDX-License-Identifier: Apache-2.0
"""Give a new instance a hot guest, on which MySQL runs already, if one fits."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from trove_ceph.db.guest_record import GuestRecord
from trove_ceph.storage import golden
from trove_ceph.strategies.backup import dependencies
from trove_ceph.strategies.guests import hot_spec, hot_volume
from trove_ceph.taskmanager import guest_factory, warm_guests
from trove_ceph.trove_adapter import guest_config, instance_creation, trove_db

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Creation:
    """A new instance that is neither a restore nor a replica.

    :param get_deps: returns the dependencies of backups
    :param guests: the warm guests; None: there are none
    :param arguments: of Trove's create_instance
    """

    conf: cfg.ConfigOpts
    get_deps: Callable[[], dependencies.BackupDependencies]
    guests: warm_guests.WarmGuests | None
    context: Any
    instance_id: str
    arguments: Mapping[str, Any]

    def claim(
        self, make_golden: Callable[[], bool]
    ) -> tuple[instance_creation.HotGuest | None, bool]:
        """Claim a hot guest, and make its volume that of the instance.

        If none fits, or it fails, the instance gets a clone of a golden volume, or no volume yet.
        It can then be created in the ordinary way.

        :param make_golden: gives the instance a clone of a golden volume, if one fits; returns
            whether it did
        :returns: the guest, None: the instance has none; and whether its volume is a clone of a
            golden volume
        """
        found = self._claim()
        if self.guests is None or found is None:
            return None, make_golden()
        guest, volumes = found
        assert guest.volume_id is not None

        def replace_volume() -> bool:
            # If Cinder refuses that, the clone would be taken to exist already.
            return volumes.take_back(guest, self.instance_id) and make_golden()

        try:
            size_gib = self.arguments['volume_size']
            volumes.hand_over(guest.volume_id, self.instance_id, size_gib)
        except Exception as error:
            LOG.warning(
                'Instance %s: the volume of hot guest %s could not be taken: %s',
                *(self.instance_id, guest.guest_id, error),
            )
            return None, self._give_up(guest, replace_volume)
        LOG.info('Instance %s: claimed hot guest %s', self.instance_id, guest.guest_id)
        return instance_creation.HotGuest(guest, replace_volume), False

    def _give_up(self, guest: GuestRecord, replace_volume: Callable[[], bool]) -> bool:
        """Give up a guest, and create the volume that the instance gets without it.

        On failure the instance shows the status that Trove shows for a volume that failed.
        """
        assert self.guests is not None
        try:
            self.guests.retire(guest, 'its volume could not be given to its instance')
            return replace_volume()
        except Exception:
            trove_db.TroveDatabase().fail_volume(self.instance_id)
            raise

    def _claim(self) -> tuple[GuestRecord, hot_volume.HotVolumes] | None:
        """Claim a hot guest, and return it with the volumes of hot guests; None: none fits."""
        arguments = self.arguments
        try:
            volume = guest_factory.hot_volume(self.conf)
            if self.guests is None or volume is None or not self._fits(volume):
                return None
            deps = self.get_deps()
            instance = deps.trove.find_instance(self.instance_id)
            if instance is None or instance.volume_id or not instance.has_our_guest_agent:
                return None
            volumes = guest_factory.make_hot_volumes(self.conf, deps)
            contents = instance_creation.render_config(
                self.context, self.instance_id, arguments['flavor']
            )
            # The server that the guest runs; the name of the version may be another one.
            version = arguments.get('ds_version') or instance.version
            guest = self.guests.claim_hot(
                self.instance_id,
                instance_creation.version_id(self.context, self.instance_id),
                arguments['flavor']['id'],
                arguments['image_id'],
                arguments.get('availability_zone'),
                hot_spec.HotSpec(volume, version, contents).digest,
            )
        except Exception as error:
            # Whatever it is, an instance can be created without a hot guest.
            LOG.warning('Instance %s: no hot guest could be claimed: %s', self.instance_id, error)
            return None
        return None if guest is None else (guest, volumes)

    def _fits(self, volume: hot_spec.HotVolume) -> bool:
        """Return whether a hot guest can be what is requested.

        Its volume can be extended, as far as a clone of a golden volume may grow. Its server runs
        without options of a tenant, and the agent sets no root password on a volume with data. The
        scheduler places servers of a group or a cluster.
        """
        volume_type = self.arguments['volume_type'] or self.conf.cinder_volume_type
        needs_own = ('overrides', 'root_password', 'cluster_config', 'locality')
        return (
            volume_type == volume.volume_type
            and bool(golden.fitting_sizes([volume.size_gib], self.arguments['volume_size']))
            and not any(self.arguments.get(name) for name in needs_own)
            and not guest_config.why_refused()
        )
