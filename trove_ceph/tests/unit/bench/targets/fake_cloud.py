# SPDX-License-Identifier: Apache-2.0
"""Fake clients of Trove, Cinder and Nova, with the calls that targets use."""

import types

import openstack.exceptions
import troveclient.exceptions

PAGE = 2


def resource(**facts):
    return types.SimpleNamespace(**facts)


def instance(name='shop', **more):
    facts = {
        'id': f'id-of-{name}',
        'name': name,
        'status': 'ACTIVE',
        'datastore': {'type': 'mysql', 'version': '9.7.4'},
        'flavor': {'id': 'f1'},
        'volume': {'size': 2},
        'addresses': [
            {'type': 'private', 'address': '10.0.0.4'},
            {'type': 'public', 'address': '192.0.2.4'},
        ],
    }
    return resource(**facts | more)


class Page(list):
    next = None


class Names:
    """Databases or users of all instances; names disappear ``lag`` listings after deletion."""

    def __init__(self, trove, lag):
        self._trove = trove
        self._lag = lag
        self._deleting = {}
        self.names = ['mysql_user', 'shop']

    def create(self, instance_id, resources):
        self._trove.check(instance_id)
        self.names += [one['name'] for one in resources]
        self._trove.created += resources

    def delete(self, instance_id, name):
        self._trove.check(instance_id)
        if name not in self.names:
            raise troveclient.exceptions.NotFound()
        self._deleting.setdefault(name, self._lag)

    def list(self, instance_id, marker=None):
        self._trove.check(instance_id)
        for name in list(self._deleting):
            if self._deleting[name] == 0:
                self.names.remove(name)
                del self._deleting[name]
            else:
                self._deleting[name] -= 1
        start = int(marker or 0)
        page = Page(resource(name=name) for name in self.names[start : start + PAGE])
        if start + PAGE < len(self.names):
            page.next = str(start + PAGE)
        return page


class FakeTrove:
    """Fake of troveclient.

    :param listed: this project's instances
    :param others: instances that only an administrator lists
    :param lag: number of listings that still contain a deleted name
    """

    def __init__(self, listed, others=(), lag=0):
        self.listed = list(listed)
        self.others = list(others)
        self.created = []
        self.refuses = None
        self.databases = Names(self, lag)
        self.users = Names(self, lag)
        self.instances = resource(get=self.check, list=lambda: list(self.listed))
        self.mgmt_instances = resource(list=self._everywhere)
        self.flavors = resource(
            get=lambda flavor: resource(name=flavor, ram=2048, vcpus=2),
        )

    def check(self, instance_id):
        if self.refuses:
            raise self.refuses
        for one in [*self.listed, *self.others]:
            if one.id == instance_id:
                return one
        raise troveclient.exceptions.NotFound()

    def _everywhere(self):
        if not self.others:
            raise troveclient.exceptions.Forbidden()
        return [*self.listed, *self.others]


class FakeConnection:
    """Fake of openstacksdk.

    :param is_admin: whether volumes and servers are accessible
    """

    def __init__(self, is_admin=False):
        self.is_admin = is_admin
        self.volume = resource(
            id='v1', migration_id=None, volume_type='nvme', size=2, host='node@nvme#nvme'
        )
        self.cpu_details = [{'time': 1_500_000_000}, {'time': 500_000_000}]
        self.compute = resource(
            get_server_diagnostics=lambda server: self._as_admin(
                resource(cpu_details=self.cpu_details)
            )
        )
        self.block_storage = resource(
            get_volume=lambda volume: self._as_admin(self.volume),
            find_type=lambda name: self._as_admin(resource(id='t1', extra_specs={'a': 'b'})),
            get=lambda url: self._as_admin(resource(json=lambda: self._qos[url])),
        )
        self._qos = {
            '/qos-specs': {
                'qos_specs': [
                    {'id': 'q0', 'consumer': 'back-end', 'specs': {}},
                    {'id': 'q1', 'consumer': 'front-end', 'specs': {'total_iops_sec': '100'}},
                ]
            },
            '/qos-specs/q0/associations': {'qos_associations': []},
            '/qos-specs/q1/associations': {'qos_associations': [{'id': 't1'}]},
        }

    def _as_admin(self, result):
        if not self.is_admin:
            raise openstack.exceptions.ForbiddenException('not yours')
        return result
