# SPDX-License-Identifier: Apache-2.0
"""How Cinder shows volumes, snapshots and pools in its answers."""

import datetime

_SHOWN = {'managing': 'creating', 'error_managing': 'error', 'error_managing_deleting': 'deleting'}


def image_name(volume):
    return f'volume-{volume["name_id"] or volume["id"]}'


def backend_of(volume):
    return volume['cluster'] or volume['host']


def shown_volume(volume, caller):
    clustered = caller.is_admin and caller.version >= (3, 61)
    return {
        'id': volume['id'],
        'name': volume['name'],
        'status': _SHOWN.get(volume['status'], volume['status']),
        'size': volume['size'],
        'volume_type': volume['type'],
        'metadata': volume['metadata'],
        'snapshot_id': volume.get('snapshot_id'),
        'bootable': volume['bootable'],
        'os-vol-host-attr:host': volume['host'],
        'os-vol-tenant-attr:tenant_id': volume['project'],
        'os-vol-mig-status-attr:name_id': volume['name_id'],
        'os-vol-mig-status-attr:migstat': None,
        'created_at': volume['created_at'],
    } | ({'cluster_name': volume['cluster']} if clustered else {})


def shown_snapshot(snapshot):
    return {
        'id': snapshot['id'],
        'name': snapshot['name'],
        'status': snapshot['status'],
        'size': snapshot['size'],
        'volume_id': snapshot['volume_id'],
        'metadata': snapshot['metadata'],
        'os-extended-snapshot-attributes:project_id': snapshot['project'],
        'created_at': snapshot['created_at'],
    }


def shown_pool(name, pool, cluster_id):
    return {
        'name': name,
        'capabilities': {
            'volume_backend_name': name.partition('#')[2],
            'storage_protocol': 'ceph',
            'location_info': f'ceph:/etc/ceph.conf:{cluster_id}:cinder:{pool}',
        },
    }


def now():
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None).isoformat()
