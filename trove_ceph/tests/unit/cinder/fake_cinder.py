# SPDX-License-Identifier: Apache-2.0
"""A fake of Cinder's API over the storage in memory, with its refusals, delays and leaks.

Modelled on cinder 29: api/contrib/{volume,snapshot}_manage.py, volume/{api,manager}.py,
transfer/api.py, volume/flows, volume/drivers/rbd.py.
"""

import ast
import re
import urllib.parse
import uuid

import requests
from keystoneauth1 import session
from oslo_utils import units

from trove_ceph.cinder import client
from trove_ceph.storage import image_types
from trove_ceph.storage.fake import backend
from trove_ceph.tests.unit.cinder import cinder_http, cinder_quota, cinder_views

GIB = units.Gi
_DELETABLE = ('available', 'error', 'error_restoring', 'error_extending', 'error_managing')


class FakeCinder:
    """The state of Cinder and its behavior.

    :param backends: the pool in Ceph by ``host@backend#pool`` or ``cluster@backend#pool``
    """

    def __init__(self, cluster, backends):
        self.cluster = cluster
        self.storage = backend.FakeBackend(cluster)
        self.backends = dict(backends)
        self.types, self.volumes, self.snapshots, self.transfers = {}, {}, {}, {}
        # Services (``host@backend``) by cluster of cinder-volume (``cluster@backend``).
        self.clusters = {}
        self.quota = cinder_quota.Quota()
        # How often the snapshots were listed.
        self.count_of_listings = 0
        # Whether cinder-volume leaves requests in its queue.
        self.stalled = False
        # Where cinder-volume fails: 'before' or 'after' it renames.
        self.failing = None
        # How many times a resource is shown before it changes.
        self.lag = 1
        self._queue, self._reads = [], 0

    # For tests to set up and inspect.

    def client(self, project, role='admin', adapter=None):
        """Return the adapter under test, with a token of a project."""
        http = requests.Session()
        http.mount('http://', adapter or cinder_http.Adapter(self))
        return client.Cinder.of_session(
            session.Session(cinder_http.Token(project, role), session=http)
        )

    def add_type(self, name, **facts):
        self.types[name] = {
            'id': f'id-of-{name}',
            'name': name,
            'extra_specs': {'volume_backend_name': name} | facts.pop('extra_specs', {}),
            'encryption': facts.pop('encryption', {}),
        }

    def form_cluster(self, name, *hosts):
        """Run cinder-volume on these hosts as one cluster, which takes all existing volumes."""
        for backend_id, pool in list(self.backends.items()):
            del self.backends[backend_id]
            service = backend_id.partition('@')[2]
            self.backends[f'{name}@{service}'] = pool
            backend_name = service.partition('#')[0]
            self.clusters[f'{name}@{backend_name}'] = [f'{one}@{backend_name}' for one in hosts]
        for volume in self.volumes.values():
            volume['cluster'] = f'{name}@{volume["host"].partition("@")[2]}'

    def add_volume(self, project, host, size_gib=1, volume_type='nvme', **facts):
        volume = self._new_volume(project, host, volume_type, 'a volume', {}, 'false')
        volume |= {'status': 'available', 'size': size_gib} | facts
        self.quota.count(project, volume_type, volumes=1, gigabytes=size_gib)
        self.storage.create_image(self.image(volume), size_gib * GIB, image_types.ImageOptions())
        return volume

    def add_snapshot(self, volume, **facts):
        snapshot = self._new_snapshot(volume, volume['project'], 'a snapshot', {})
        snapshot |= {'status': 'available'} | facts
        self.quota.count(volume['project'], volume['type'], snapshots=1, gigabytes=volume['size'])
        self.storage.create_snapshot(self.image(volume).snapshot(f'snapshot-{snapshot["id"]}'))
        return snapshot

    def image(self, volume):
        return image_types.ImageRef(
            self.backends[cinder_views.backend_of(volume)], cinder_views.image_name(volume)
        )

    def work(self):
        """Let cinder-volume process its queue."""
        while self._queue and not self.stalled:
            self._queue.pop(0)()

    def true_usage(self):
        """Return the actual usage of the projects, which their quota should show."""
        counted = {}
        for kind, items in (('volumes', self.volumes), ('snapshots', self.snapshots)):
            for one in items.values():
                for name, amount in ((kind, 1), ('gigabytes', one['size'])):
                    for key in (name, f'{name}_{one["type"]}'):
                        entry = (one['project'], key)
                        counted[entry] = counted.get(entry, 0) + amount
        return {entry: amount for entry, amount in counted.items() if amount}

    # The API.

    def answer(self, method, url, body, token, version=(3, 0)):
        project, _, role = token.partition('/')
        parts = urllib.parse.urlsplit(url)
        query = dict(urllib.parse.parse_qsl(parts.query))
        path = parts.path.removeprefix(f'/v3/{project}/')
        for pattern, verb, handler in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match and verb == method:
                caller = cinder_http.Caller(project, role == 'admin', version)
                return handler(self, caller, *match.groups(), query=query, body=body)
        raise cinder_http.Refused(404, f'{method} {path}')

    def list_volumes(self, caller, query, body):
        self._read()
        metadata = ast.literal_eval(query.get('metadata', '{}'))
        return {
            'volumes': [
                cinder_views.shown_volume(one, caller)
                for one in self.volumes.values()
                if caller.sees(one, query) and metadata.items() <= one['metadata'].items()
            ]
        }

    def show_volume(self, caller, volume_id, query, body):
        self._read()
        return {'volume': cinder_views.shown_volume(self._get(self.volumes, volume_id), caller)}

    def manage_volume(self, caller, query, body):
        caller.require_admin()
        request = body['volume']
        volume_type = self.types.get(request['volume_type'])
        if volume_type is None:
            raise cinder_http.Refused(400, 'Cannot find requested volume type')
        if volume_type['encryption']:
            raise cinder_http.Refused(400, 'Managing to an encrypted volume type is not supported.')
        host, cluster = self._find_service(caller, request)
        self.quota.reserve(caller.project, volume_type['name'], volumes=1)
        volume = self._new_volume(
            caller.project,
            host,
            volume_type['name'],
            request['name'],
            request['metadata'],
            request['bootable'],
            cluster,
        )
        self._later(lambda: self._manage(volume, request['ref']['source-name']))
        return {'volume': cinder_views.shown_volume(volume, caller)}

    def _find_service(self, caller, request):
        """Return host and cluster of a service that is up, with their pools."""
        host = request.get('host')
        cluster = request.get('cluster') if caller.version >= (3, 16) else None
        if bool(host) == bool(cluster):
            raise cinder_http.Refused(400, 'One and only one of cluster and host must be set.')
        pools = {each.partition('#')[0]: each.partition('#')[2] for each in self.backends}
        name = (host or cluster).partition('#')[0]
        for one, services in self.clusters.items():
            if name in ([one] if cluster else services):
                chosen = services[0] if cluster else name
                return f'{chosen}#{pools[one]}', f'{one}#{pools[one]}'
        if cluster or name not in pools or name in self.clusters:
            raise cinder_http.Refused(503, f'{"Host" if host else "Cluster"} {name} not found')
        return f'{name}#{pools[name]}', None

    def _manage(self, volume, source):
        volume['status'] = 'error_managing'
        backend_name = self.types[volume['type']]['extra_specs'].get('volume_backend_name')
        if backend_name not in (None, volume['host'].partition('#')[2]):
            return
        found = self.cluster.find(
            image_types.ImageRef(self.backends[cinder_views.backend_of(volume)], source)
        )
        if found is None or self.failing == 'before':
            return
        size = -(-found.size_bytes // GIB)
        try:
            self.quota.reserve(volume['project'], volume['type'], gigabytes=size)
        except cinder_http.Refused:
            return
        found.name = cinder_views.image_name(volume)
        if self.failing == 'after':
            self.quota.count(volume['project'], volume['type'], gigabytes=-size)
            return
        volume |= {'status': 'available', 'size': size}

    def delete_volume(self, caller, volume_id, query, body):
        volume = self._get(self.volumes, volume_id)
        snapshots = [one for one in self.snapshots.values() if one['volume_id'] == volume_id]
        if volume['status'] not in _DELETABLE or snapshots:
            raise cinder_http.Refused(
                400, 'Volume must not be attached, have snapshots, awaiting a transfer'
            )
        failed = volume['status'] == 'error_managing'
        volume['status'] = 'error_managing_deleting' if failed else 'deleting'
        self._later(lambda: self._delete_volume(volume))

    def _delete_volume(self, volume):
        if not self._delete_image(self.image(volume)):
            volume['status'] = 'available'
            return
        del self.volumes[volume['id']]
        # Cinder does not release the quota of a volume in status error_managing.
        if volume['status'] != 'error_managing_deleting':
            freed = {'volumes': -1, 'gigabytes': -volume['size']}
            self.quota.count(volume['project'], volume['type'], **freed)

    def _delete_image(self, image):
        """Delete an image as the RBD driver does; return False if the image is in use."""
        found = self.cluster.find(image)
        if found is None:
            return True
        if found.watchers:
            return False
        if found.snapshots:
            for child in self.cluster.children(found):
                self.storage.flatten(child.image)
        if found.snapshots:
            self.storage.trash(image)
        else:
            self.storage.remove(image)
        return True

    def act_on_volume(self, caller, volume_id, query, body):
        volume = self._get(self.volumes, volume_id)
        if 'os-extend' in body:
            self._extend(volume, body['os-extend']['new_size'])
            return
        caller.require_admin()
        volume['status'] = body['os-reset_status']['status']

    def _extend(self, volume, size):
        status = volume['status']
        if status not in ('available', 'in-use'):
            raise cinder_http.Refused(400, f'Volume status must be available or in-use: {status}')
        if size <= volume['size']:
            raise cinder_http.Refused(400, 'New size for extend must be greater than current size')
        self.quota.reserve(volume['project'], volume['type'], gigabytes=size - volume['size'])
        volume['status'] = 'extending'
        self._later(lambda: self._do_extend(volume, size, status))

    def _do_extend(self, volume, size, status):
        if self.failing == 'extend':
            volume['status'] = 'error_extending'
            self.quota.count(volume['project'], volume['type'], gigabytes=volume['size'] - size)
            return
        self.cluster.find(self.image(volume)).resize(size * GIB)
        volume |= {'status': status, 'size': size}

    def update_volume(self, caller, volume_id, query, body):
        volume = self._get(self.volumes, volume_id)
        volume['name'] = body['volume']['name']
        return {'volume': cinder_views.shown_volume(volume, caller)}

    def set_metadata(self, caller, volume_id, query, body):
        volume = self._get(self.volumes, volume_id)
        volume['metadata'] |= body['metadata']
        return {'metadata': volume['metadata']}

    def list_snapshots(self, caller, query, body):
        self._read()
        self.count_of_listings += 1
        return {
            'snapshots': [
                cinder_views.shown_snapshot(one)
                for one in self.snapshots.values()
                if caller.sees(one, query) and query.get('volume_id') in (None, one['volume_id'])
            ]
        }

    def show_snapshot(self, caller, snapshot_id, query, body):
        self._read()
        return {'snapshot': cinder_views.shown_snapshot(self._get(self.snapshots, snapshot_id))}

    def manage_snapshot(self, caller, query, body):
        request = body['snapshot']
        volume = self._get(self.volumes, request['volume_id'])
        caller.require_admin()
        if volume['status'] not in ('available', 'in-use'):
            raise cinder_http.Refused(
                400, f'Volume status must be available, in-use: {volume["status"]}'
            )
        self.quota.reserve(caller.project, volume['type'], snapshots=1, gigabytes=volume['size'])
        snapshot = self._new_snapshot(volume, caller.project, request['name'], request['metadata'])
        self._later(lambda: self._manage_snapshot(volume, snapshot, request['ref']['source-name']))
        return {'snapshot': cinder_views.shown_snapshot(snapshot)}

    def _manage_snapshot(self, volume, snapshot, source):
        snapshot['status'] = 'error'
        image = self.cluster.find(self.image(volume))
        found = [one for one in image.snapshots if one.name == source] if image else []
        if not found or self.failing == 'before':
            return
        found[0].name = f'snapshot-{snapshot["id"]}'
        if self.failing != 'after':
            snapshot['status'] = 'available'

    def delete_snapshot(self, caller, snapshot_id, query, body):
        snapshot = self._get(self.snapshots, snapshot_id)
        if snapshot['status'] not in ('available', 'error'):
            raise cinder_http.Refused(400, 'Snapshot status must be available or error')
        snapshot['status'] = 'deleting'
        self._later(lambda: self._delete_snapshot(snapshot))

    def _delete_snapshot(self, snapshot):
        volume = self.volumes[snapshot['volume_id']]
        image = self.cluster.find(self.image(volume))
        name = f'snapshot-{snapshot["id"]}'
        if image and any(one.name == name for one in image.snapshots):
            self.storage.remove_snapshot(image.ref.snapshot(name))
        del self.snapshots[snapshot['id']]
        self.quota.count(
            snapshot['project'], snapshot['type'], snapshots=-1, gigabytes=-snapshot['size']
        )

    def act_on_snapshot(self, caller, snapshot_id, query, body):
        caller.require_admin()
        self._get(self.snapshots, snapshot_id)['status'] = body['os-reset_status']['status']

    def list_transfers(self, caller, query, body):
        offered = [
            one
            for one in self.transfers.values()
            if self.volumes[one['volume_id']]['project'] == caller.project
        ]
        return {
            'transfers': [{key: one[key] for key in ('id', 'volume_id', 'name')} for one in offered]
        }

    def offer(self, caller, query, body):
        request = body['transfer']
        volume = self._get(self.volumes, request['volume_id'])
        if volume['status'] != 'available':
            raise cinder_http.Refused(400, 'status must be available')
        volume['status'] = 'awaiting-transfer'
        transfer = {'id': str(uuid.uuid4()), 'auth_key': uuid.uuid4().hex, **request}
        self.transfers[transfer['id']] = transfer
        return {'transfer': transfer}

    def accept(self, caller, transfer_id, query, body):
        transfer = self._get(self.transfers, transfer_id)
        if body['accept']['auth_key'] != transfer['auth_key']:
            raise cinder_http.Refused(400, 'Invalid auth key')
        volume = self.volumes[transfer['volume_id']]
        counted = {'volumes': 1, 'gigabytes': volume['size']}
        self.quota.reserve(caller.project, volume['type'], **counted)
        self.quota.count(volume['project'], volume['type'], volumes=-1, gigabytes=-volume['size'])
        volume |= {'project': caller.project, 'status': 'available'}
        del self.transfers[transfer_id]
        return {'transfer': {'id': transfer_id, 'volume_id': volume['id'], 'name': ''}}

    def withdraw(self, caller, transfer_id, query, body):
        transfer = self._get(self.transfers, transfer_id)
        self.volumes[transfer['volume_id']]['status'] = 'available'
        del self.transfers[transfer_id]

    def list_types(self, caller, query, body):
        assert query['is_public'] == 'None', query
        listed = list(self.types.values())
        if 'marker' in query:
            listed = listed[[one['id'] for one in listed].index(query['marker']) + 1 :]
        return {'volume_types': listed}

    def show_encryption(self, caller, type_id, query, body):
        return next(one['encryption'] for one in self.types.values() if one['id'] == type_id)

    def list_clusters(self, caller, query, body):
        caller.require_admin()
        assert caller.version >= (3, 7), caller.version
        return {
            'clusters': [
                {'name': name, 'binary': 'cinder-volume', 'state': 'up', 'status': 'enabled'}
                for name in self.clusters
                if query.get('name') in (None, name)
            ]
        }

    def list_pools(self, caller, query, body):
        caller.require_admin()
        shown = cinder_views.shown_pool
        pools = [shown(*item, self.cluster.cluster_id) for item in self.backends.items()]
        other = {'name': 'other@lvm#lvm', 'capabilities': {'storage_protocol': 'iSCSI'}}
        return {'pools': [*pools, other]}

    def show_quota(self, caller, project, query, body):
        return {'quota_set': {'id': project} | self.quota.shown(project, self.types)}

    # Internals.

    def _get(self, items, key):
        if key not in items:
            raise cinder_http.Refused(404, f'{key} could not be found.')
        return items[key]

    def _later(self, request):
        self._queue.append(request)
        self._reads = 0

    def _read(self):
        self._reads += 1
        if self._reads > self.lag:
            self.work()

    def _new_volume(self, project, host, volume_type, name, metadata, bootable, cluster=None):
        volume = {
            'id': str(uuid.uuid4()),
            'project': project,
            'host': host,
            'cluster': cluster,
            'type': volume_type,
            'name': name,
            'metadata': dict(metadata),
            'bootable': str(bootable).lower(),
            'status': 'managing',
            'size': 0,
            'name_id': None,
            'created_at': cinder_views.now(),
        }
        self.volumes[volume['id']] = volume
        return volume

    def _new_snapshot(self, volume, project, name, metadata):
        snapshot = {
            'id': str(uuid.uuid4()),
            'project': project,
            'volume_id': volume['id'],
            'type': volume['type'],
            'name': name,
            'metadata': dict(metadata),
            'status': 'creating',
            'size': volume['size'],
            'created_at': cinder_views.now(),
        }
        self.snapshots[snapshot['id']] = snapshot
        return snapshot


_ID = '([^/]+)'
_ROUTES = [
    ('volumes/detail', 'GET', FakeCinder.list_volumes),
    (f'volumes/{_ID}', 'GET', FakeCinder.show_volume),
    (f'volumes/{_ID}', 'PUT', FakeCinder.update_volume),
    (f'volumes/{_ID}', 'DELETE', FakeCinder.delete_volume),
    (f'volumes/{_ID}/action', 'POST', FakeCinder.act_on_volume),
    (f'volumes/{_ID}/metadata', 'POST', FakeCinder.set_metadata),
    ('os-volume-manage', 'POST', FakeCinder.manage_volume),
    ('snapshots/detail', 'GET', FakeCinder.list_snapshots),
    (f'snapshots/{_ID}', 'GET', FakeCinder.show_snapshot),
    (f'snapshots/{_ID}', 'DELETE', FakeCinder.delete_snapshot),
    (f'snapshots/{_ID}/action', 'POST', FakeCinder.act_on_snapshot),
    ('os-snapshot-manage', 'POST', FakeCinder.manage_snapshot),
    ('volume-transfers/detail', 'GET', FakeCinder.list_transfers),
    ('volume-transfers', 'POST', FakeCinder.offer),
    (f'volume-transfers/{_ID}', 'DELETE', FakeCinder.withdraw),
    (f'volume-transfers/{_ID}/accept', 'POST', FakeCinder.accept),
    ('clusters', 'GET', FakeCinder.list_clusters),
    ('types', 'GET', FakeCinder.list_types),
    (f'types/{_ID}/encryption', 'GET', FakeCinder.show_encryption),
    ('scheduler-stats/get_pools', 'GET', FakeCinder.list_pools),
    (f'os-quota-sets/{_ID}', 'GET', FakeCinder.show_quota),
]
