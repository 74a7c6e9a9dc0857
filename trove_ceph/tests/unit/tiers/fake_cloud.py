# SPDX-License-Identifier: Apache-2.0
"""Cinder's API and ``trove-manage`` from memory."""

import json
import urllib.parse
import uuid

import requests
from keystoneauth1 import session, token_endpoint

from trove_ceph.cinder import connection

URL = 'http://cinder/v3/a-project'


class FakeCinder:
    """Answer and refuse as Cinder does.

    :param page: number of items in one page of a list
    :param url: its own URL, for links to further pages
    """

    def __init__(self, backends=(), page=1000, url=URL):
        self.url = url
        self.types = {}
        self.qos = {}
        self.volumes = []
        self.backends = list(backends)
        #: The location_info of back ends by their names.
        self.locations = {}
        #: Pools of the scheduler in place of both.
        self.pools = None
        self.page = page
        self.changes = []
        self.failure = None
        self.scheduler_answers = True

    def client(self):
        """Return a client of python-cinderclient that reaches it without a network."""
        http = requests.Session()
        http.mount('http://', _Network(self))
        return connection.connect(
            session.Session(token_endpoint.Token(self.url, 'a-token'), session=http)
        )

    def add_volume(self, volume_type, size, backend='fast', **attributes):
        """Add a volume and return it, as Cinder shows it to an administrator."""
        volume = {
            'id': str(uuid.uuid4()),
            'volume_type': volume_type,
            'size': size,
            'status': 'available',
            'os-vol-host-attr:host': f'host@section#{backend}',
            'os-vol-mig-status-attr:name_id': None,
        }
        self.volumes.append(volume | attributes)
        return self.volumes[-1]

    def get(self, path):
        url = urllib.parse.urlsplit(path)
        query = dict(urllib.parse.parse_qsl(url.query))
        parts = url.path.strip('/').split('/')
        if parts[0] == 'volumes' and parts[1] != 'detail':
            return self._show_volume(parts[1])
        if parts[-1] in ('associate', 'disassociate'):
            self.changes.append(f'GET {path}')
            return self._associate(*parts[1:], query['vol_type_id'])
        lists = {
            'types': ('volume_types', self._shown(query)),
            'qos-specs': ('qos_specs', list(self.qos.values())),
            'volumes': ('volumes', self.volumes),
            'scheduler-stats': (
                'pools',
                self.pools
                or [
                    {'name': name, 'capabilities': self._capabilities(name)}
                    for name in self.backends
                ],
            ),
        }
        if parts[0] == 'scheduler-stats' and not self.scheduler_answers:
            return self._respond({'computeFault': {'message': 'MessagingTimeout'}}, 500)
        return self._paged(*lists[parts[0]], url.path, query)

    def _capabilities(self, name):
        found = {'volume_backend_name': name}
        if name in self.locations:
            found |= {'storage_protocol': 'ceph', 'location_info': self.locations[name]}
        return found

    def _show_volume(self, number):
        for volume in self.volumes:
            if volume['id'] == number:
                return self._respond({'volume': volume})
        return self._respond({'itemNotFound': {'message': f'Volume {number}'}}, 404)

    def _shown(self, query):
        # Without the filter, an administrator sees public types only.
        shown = self.types.values()
        return [one for one in shown if one['is_public'] or query.get('is_public') == 'None']

    def _paged(self, key, items, path, query):
        marker = query.get('marker')
        begin = [one['id'] for one in items].index(marker) + 1 if marker else 0
        body = {key: items[begin : begin + self.page]}
        if begin + self.page < len(items):
            last = items[begin + self.page - 1]
            following = urllib.parse.urlencode(query | {'marker': last['id']})
            links = {'volume_types': 'volume_type_links'}.get(key, f'{key}_links')
            body[links] = [{'rel': 'next', 'href': f'{self.url}{path}?{following}'}]
        return self._respond(body)

    def post(self, path, json):
        self.changes.append(f'POST {path} {json}')
        if path == '/types':
            body = json['volume_type']
            return self._create(
                self.types,
                {
                    'name': body['name'],
                    'description': body['description'],
                    'is_public': body['os-volume-type-access:is_public'],
                    'extra_specs': {},
                    'qos_specs_id': None,
                },
                'volume_type',
            )
        if path == '/qos-specs':
            body = dict(json['qos_specs'])
            name, consumer = body.pop('name'), body.pop('consumer', 'back-end')
            specs = {'name': name, 'consumer': consumer, 'specs': body}
            return self._create(self.qos, specs, 'qos_specs')
        found = self.types[path.split('/')[2]]
        if any(volume['volume_type'] == found['name'] for volume in self.volumes):
            return self._respond({'badRequest': {'message': 'Volume Type is in use'}}, 400)
        found['extra_specs'] |= json['extra_specs']
        return self._respond(json)

    def put(self, path, json):
        self.changes.append(f'PUT {path} {json}')
        kind, number, *rest = path.strip('/').split('/')
        if kind == 'types':
            given = json['volume_type'].items()
            self.types[number] |= {key: value for key, value in given if value is not None}
        elif rest == ['delete_keys']:
            for key in json['keys']:
                del self.qos[number]['specs'][key]
        else:
            specs = dict(json['qos_specs'])
            self.qos[number]['consumer'] = specs.pop('consumer', self.qos[number]['consumer'])
            self.qos[number]['specs'] |= specs
        return self._respond(json)

    def delete(self, path):
        self.changes.append(f'DELETE {path}')
        number = path.partition('?')[0].split('/')[2]
        if any(one['qos_specs_id'] == number for one in self.types.values()):
            return self._respond({'badRequest': {'message': 'Qos specs still in use.'}}, 400)
        del self.qos[number]
        return self._respond({}, 202)

    def _create(self, items, item, key):
        if any(item['name'] == other['name'] for other in items.values()):
            return self._respond({'conflictingRequest': {'message': 'exists'}}, 409)
        item['id'] = f'id-of-{item["name"]}'
        items[item['id']] = item
        return self._respond({key: item})

    def _associate(self, specs, verb, type_id):
        found = self.types[type_id]
        if verb == 'disassociate':
            found['qos_specs_id'] = None
        elif found['qos_specs_id'] not in (None, specs):
            return self._respond({'badRequest': {'message': 'associated with another'}}, 400)
        else:
            found['qos_specs_id'] = specs
        return self._respond({})

    def _respond(self, body, status=200):
        if self.failure:
            status, body = self.failure, {'error': {'message': 'it cannot answer'}}
        response = requests.Response()
        response.status_code = status
        response.headers['Content-Type'] = 'application/json'
        response._content = json.dumps(body).encode()
        return response


class _Network(requests.adapters.BaseAdapter):
    """Pass requests to the fake Cinder."""

    def __init__(self, cinder):
        super().__init__()
        self._cinder = cinder

    def send(self, request, **kwargs):
        path = request.url.removeprefix(self._cinder.url)
        arguments = {'json': json.loads(request.body)} if request.body else {}
        response = getattr(self._cinder, request.method.lower())(path, **arguments)
        response.url, response.request = request.url, request
        return response

    def close(self):
        """Do nothing: there is no connection."""


class FakeTroveManage:
    """Stand in for ``trove-manage``, whose exit code is 0 even on failure."""

    def __init__(self, **associations):
        self.associations = {'mysql/9.7.4': set()}
        self.changes = []
        self.output = None

    def __call__(self, program, option, conf, verb, datastore, version, *words, timeout_sec=60):
        assert (program, option, conf) == ('trove-manage', '--config-file', 'trove.conf')
        if self.output is not None:
            return self.output
        found = self.associations.get(f'{datastore}/{version}')
        if found is None:
            return f"Datastore version '{version}' cannot be found."
        name = verb.removeprefix('datastore_version_volume_type_')
        if name == 'list':
            where = f'Datastore: {datastore}, Version: {version}'
            lines = [f'{where}, Volume Type: {each}' for each in sorted(found)]
            return '\n'.join(lines) or f'No Volume Type Associations found for {where}.'
        self.changes.append(f'{name} {datastore}/{version} {words[0]}')
        if name == 'add':
            found.add(words[0])
        else:
            found.discard(words[0])
        return f'Changed {words[0]}.'
