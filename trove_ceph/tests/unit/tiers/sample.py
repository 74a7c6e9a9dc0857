# SPDX-License-Identifier: Apache-2.0
"""A tiers file for the tests, and variations of it."""

import copy

from trove_ceph.tiers import tiers_file

CONTENT = {
    'tiers': {
        'fast': {
            'purpose': 'data',
            'device_class': 'nvme',
            'pool': 'volumes-fast',
            'copies': 2,
            'min_size': 1,
            'placement_groups': {'count': 64},
            'iops': {'per_gib': 30, 'floor': 3000, 'cap': 20000},
            'throughput_mib_per_sec': 500,
            'qos': 'front-end',
            'volume_type': {'name': 'fast', 'backend': 'fast', 'description': 'NVMe'},
            'datastore_versions': ['mysql/9.7.4'],
        },
        'follower': {
            'purpose': 'replica',
            'device_class': 'nvme',
            'pool': 'replicas',
            'copies': 1,
            'placement_groups': {'count': 16},
        },
        'vault': {
            'purpose': 'vault',
            'device_class': 'hdd',
            'pool': 'vault',
            'copies': 2,
            'erasure': {'k': 2, 'm': 1},
            'placement_groups': {'share': 0.5},
            'compression': {'mode': 'aggressive', 'algorithm': 'zstd'},
        },
        'images': {
            'purpose': 'images',
            'device_class': 'hdd',
            'pool': 'images',
            'copies': 2,
            'placement_groups': {'autoscale': 0.1},
        },
    },
    'users': {
        'client.cinder': {'role': 'cinder'},
        'client.glance': {'role': 'glance'},
        'client.storage': {'role': 'storage'},
    },
}


def changed(changes=()):
    """Return the content with values replaced by their dotted path; None removes the key."""
    content = copy.deepcopy(CONTENT)
    for path, value in dict(changes).items():
        *parents, last = path.split('/')
        holder = content
        for step in parents:
            holder = holder[step]
        if value is None:
            del holder[last]
        else:
            holder[last] = value
    return content


def read(changes=()):
    """Return the parsed content with these changes."""
    return tiers_file.parse(changed(changes))


#: An erasure code with each of its keys.
FULL_ERASURE = {
    'k': 2,
    'm': 1,
    'plugin': 'isa',
    'technique': 'cauchy',
    'pool': 'volumes-fast-data',
    'min_size': 2,
    'metadata_device_class': 'nvme',
    'metadata_pg_num': 16,
}
