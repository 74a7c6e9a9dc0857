# SPDX-License-Identifier: Apache-2.0
"""The data volume of an instance, as Trove's configuration describes it."""

from trove.common import cfg

from trove_ceph.host import data_volume, filesystem

CONF = cfg.CONF


def configured(
    storage: filesystem.HostStorage,
    device_path: str | None = None,
    mount_point: str | None = None,
) -> data_volume.DataVolume:
    """Return the data volume of this instance; Trove's configuration has the defaults."""
    datastore = CONF.get(CONF.datastore_manager)
    return data_volume.DataVolume(
        device_path or datastore.device_path, mount_point or datastore.mount_point, storage
    )


def prepare(storage: filesystem.HostStorage, volume_id: str) -> None:
    """Format, mount, grow and tune the data volume that Trove's configuration names.

    :param volume_id: see :meth:`.DataVolume.prepare`
    :raises TroveCephError: the volume cannot be used
    """
    datastore = CONF.get(CONF.datastore_manager)
    uid = int(datastore.database_service_uid or CONF.database_service_uid)
    gid = int(datastore.database_service_gid or uid)
    configured(storage).prepare(
        uid,
        gid,
        ready_timeout_sec=CONF.trove_ceph.volume_ready_timeout_sec,
        format_timeout_sec=CONF.volume_format_timeout,
        read_ahead_kib=CONF.trove_ceph.read_ahead_kib,
        volume_id=volume_id,
    )
