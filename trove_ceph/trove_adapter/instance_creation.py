# SPDX-License-Identifier: Apache-2.0
"""Create an instance as Trove does, but on a volume that may exist, and notice soon that it runs.

Trove polls in intervals that double: it asks for the guest's report at last every 30 seconds, and
for a new volume, which Ceph creates in less than a second, after three.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import oslo_db.exception
from oslo_log import log as logging
from trove.common import cfg, exception, server_group
from trove.instance import models as instance_models
from trove.instance import service_status

from trove_ceph import waiting
from trove_ceph.db.guest_record import GuestRecord
from trove_ceph.trove_adapter import warm_server

LOG = logging.getLogger(__name__)
CONF = cfg.CONF


@dataclasses.dataclass(frozen=True)
class HotGuest:
    """A hot guest that an instance has claimed, and whose volume is that of the instance.

    :param replace_volume: takes the volume from the instance, and makes a clone of a golden volume
        if one fits; returns whether it did
    """

    guest: GuestRecord
    replace_volume: Callable[[], bool]


_ARGUMENTS = (
    *('flavor', 'image_id', 'databases', 'users', 'datastore_manager', 'packages', 'volume_size'),
    *('backup_id', 'availability_zone', 'root_password', 'nics', 'overrides', 'cluster_config'),
    *('volume_type', 'modules', 'access', 'ds_version'),
)

# As long as a volume of Ceph may take under load; Trove's own intervals follow.
_VOLUME_WAIT_SEC = 10
_VOLUME_POLL_SEC = 0.3
# A query of one row by its key.
_REPORT_POLL_SEC = 1
# A request to Nova, which tells whether the server has failed.
_SERVER_CHECK_SEC = 15


class _Instance(warm_server.WarmServerTasks):
    #: Whether its tenant has seen it usable, and may have requested another operation since.
    is_shown = False

    def reset_task_status(self):
        """Show the instance as created."""
        super().reset_task_status()
        self.is_shown = True

    def _create_volume(self, volume_size, volume_type, datastore_manager, *arguments, **options):
        if self.volume_id is None:
            return super()._create_volume(
                volume_size, volume_type, datastore_manager, *arguments, **options
            )
        return self._build_volume(self.volume_client.volumes.get(self.volume_id), datastore_manager)

    def update_db(self, **values):
        """Store values; Trove stores the volume's id when it has requested the volume.

        The wait for the volume is here, so that Trove's first look finds the volume created.
        """
        super().update_db(**values)
        if values.get('volume_id'):
            deadline = waiting.Deadline(_VOLUME_WAIT_SEC)
            while self._is_being_created(values['volume_id']):
                if not deadline.pause(_VOLUME_POLL_SEC):
                    return

    def _is_being_created(self, volume_id: str) -> bool:
        try:
            return self.volume_client.volumes.get(volume_id).status == 'creating'
        except Exception as error:
            # Trove's own look follows and decides.
            LOG.debug('Volume %s cannot be shown now: %s', volume_id, error)
            return False

    def wait_for_instance(self, timeout, flavor):
        self._deadline = waiting.Deadline(timeout)
        super().wait_for_instance(timeout, flavor)

    def _service_is_active(self):
        """Return True once the guest has reported that the service runs; never False.

        Trove calls this again after an answer of False, but not soon.

        :raises PollTimeOut: the guest did not report in time
        :raises TroveError: the service or the server has failed
        """
        while True:
            # Read first: a report that arrives after Trove has looked must not be missed.
            known = self._reported_status()
            try:
                if super()._service_is_active():
                    return True
            except oslo_db.exception.DBError as error:
                # Trove would leave the instance in BUILD for ever.
                LOG.warning('Instance %s: its status cannot be read now: %s', self.id, error)
            self._wait_for_report(known)

    def _wait_for_report(self, known: service_status.ServiceStatus | None) -> None:
        """Wait until the status differs from ``known``, or the server is to be checked again."""
        server_check = waiting.Deadline(_SERVER_CHECK_SEC)
        while server_check.left_sec and self._reported_status() == known:
            if not self._deadline.pause(_REPORT_POLL_SEC):
                raise exception.PollTimeOut()

    def _reported_status(self) -> service_status.ServiceStatus | None:
        """Return the status; None: the database does not answer now."""
        try:
            row = instance_models.InstanceServiceStatus.find_by(instance_id=self.id)
        except oslo_db.exception.DBError:
            return None
        return row.get_status()


class _Clone(_Instance):
    """An instance whose volume has data that no backup names: a replica, or a golden clone."""

    _has_data = True

    def _guest_prepare(
        self,
        flavor_ram,
        volume_info,
        packages,
        databases,
        users,
        backup_info=None,
        *rest,
        **options,
    ):
        if self._has_data:
            # As for a restore, the agent keeps the data and gives the server a new identity.
            backup_info = {'id': self.id, 'storage_driver': 'cinder', 'location': 'cinder://'}
            if self._is_hot:
                # And it need not start the server, whose volume may have been extended.
                backup_info |= {'is_hot': True, 'volume_gib': self.volume_size}
        super()._guest_prepare(
            flavor_ram, volume_info, packages, databases, users, backup_info, *rest, **options
        )


class _Hot(_Clone):
    """An instance with a hot guest and the guest's volume; with others if that fails."""

    hot: HotGuest
    _is_hot = True

    def _claim(self, flavor, image_id, arguments):
        return self.hot.guest

    def _create_volume(self, *arguments, **options):
        self._request_volume = functools.partial(super()._create_volume, *arguments, **options)
        if self._claimed_guest is None:
            return self._replace_volume()
        return self._request_volume()

    def _volumes_of_other_server(self, volumes):
        return self._replace_volume()['block_device']

    def _replace_volume(self):
        """Create the volume that the instance gets without a hot guest."""
        self._is_hot = False
        self._has_data = self.hot.replace_volume()
        # Read the row again, which has another volume, or none.
        self.update_db()
        return self._request_volume()


def render_config(context: Any, instance_id: str, flavor: Mapping[str, Any]) -> str:
    """Return the my.cnf that an instance will get, without its configuration group.

    :param flavor: as in the call to Trove's manager
    """
    return _Instance.load(context, instance_id)._render_config(flavor).config_contents


def version_id(context: Any, instance_id: str) -> str:
    """Return the id of the datastore version of an instance."""
    return str(_Instance.load(context, instance_id).datastore_version.id)


def create(
    context: Any,
    instance_id: str,
    arguments: Mapping[str, Any],
    guests: warm_server.WarmGuests | None = None,
    is_golden: bool = False,
    hot: HotGuest | None = None,
) -> bool:
    """Create an instance, and wait until it is usable; return whether it is.

    Its volume is the one that Trove's tables name. If they name none, Cinder creates it, from the
    backup's snapshot for a restore, as in Trove.

    :param arguments: of the call to Trove's manager, by their names
    :param guests: the warm guests; None: Nova boots a server
    :param is_golden: the volume is a clone of a golden volume, whose data the guest keeps
    :param hot: a hot guest for the instance; None: there is none
    """
    hints = server_group.ServerGroup.build_scheduler_hint(
        context, arguments.get('locality'), instance_id
    )
    kind = _Hot if hot else _Clone if is_golden else _Instance
    instance = kind.load(context, instance_id)
    instance.guests = guests
    instance.hot = hot
    instance.create_instance(
        **{name: arguments.get(name) for name in _ARGUMENTS}, snapshot=None, scheduler_hints=hints
    )
    timeout_sec = CONF.restore_usage_timeout if arguments['backup_id'] else CONF.usage_timeout
    instance.wait_for_instance(timeout_sec, arguments['flavor'])
    return bool(instance.is_shown)


def create_replica(
    context: Any,
    instance_id: str,
    arguments: Mapping[str, Any],
    replica_context: Mapping[str, Any],
    guests: warm_server.WarmGuests | None = None,
) -> bool:
    """Create a replica on the volume that Trove's tables name, and wait until it follows.

    As in Trove, its server belongs to the server group of its source, if that has one.

    :param context: used by no other thread; Trove changes its notification while it casts
    :param arguments: see :func:`create`
    :param replica_context: what it needs to follow its source
    :returns: whether it follows; if not, Trove shows it as failed, with the reason as a fault
    """
    source_group = server_group.ServerGroup.load(context, arguments['slave_of_id'])
    instance = _Clone.load(context, instance_id)
    instance.guests = guests
    config = instance._render_replica_config(arguments['flavor']).config_contents
    # The data are those of the volume, not of a backup.
    own = {name: arguments.get(name) for name in _ARGUMENTS} | {'backup_id': None}
    instance.create_instance(
        **own,
        snapshot={**replica_context, 'config': config},
        scheduler_hints=server_group.ServerGroup.convert_to_hint(source_group),
    )
    instance.wait_for_instance(CONF.restore_usage_timeout, arguments['flavor'])
    row = instance_models.DBInstance.find_by(id=instance_id)
    # It may have another operation already.
    return not row.deleted and not row.task_status.is_error
