# SPDX-License-Identifier: Apache-2.0
"""The JSON schema of the file for hyper-converged hosts."""

from typing import Any

from trove_ceph.enums import DeviceClass
from trove_ceph.hci.inventory import Network
from trove_ceph.hci.workload import RootDisk
from trove_ceph.schema_parts import NAME, mapping, whole_number
from trove_ceph.sizes import SIZE, SPEED

_MEMORY = SIZE | {'description': 'a size with a unit of powers of 1024, such as 256GiB'}
_NODE_NUMBER = whole_number(0, 1023, 'a NUMA node, as the kernel numbers it')
_PATH = {
    'type': 'string',
    # The characters that udev leaves in the names of devices.
    'pattern': '^/dev(/(?!\\.)[A-Za-z0-9#+.:=@_-]+)+\\Z',
    'description': 'the path of a device, such as /dev/disk/by-id/nvme-A1',
}
_CORE = {
    'type': ['integer', 'string'],
    'pattern': '^[0-9]{1,4}([,-][0-9]{1,4}){0,7}\\Z',
    'minimum': 0,
    'maximum': 8191,
    'description': 'the CPUs (threads) of one core, such as "0,28", as in '
    '/sys/devices/system/cpu/cpu0/topology/thread_siblings_list',
}


def _list_of(items: dict[str, Any], what: str, least: int = 0) -> dict[str, Any]:
    return {'type': 'array', 'items': items, 'minItems': least, 'description': f'a list of {what}'}


def _device(classes: list[str]) -> dict[str, Any]:
    return mapping(
        {'path': _PATH, 'class': {'enum': classes}, 'size': SIZE, 'numa_node': _NODE_NUMBER},
        ['path', 'class', 'size'],
        'the keys path, class and size, and optionally numa_node',
    )


_NUMA_NODE = mapping(
    {'node': _NODE_NUMBER, 'memory': _MEMORY, 'cores': _list_of(_CORE, 'cores', least=1)},
    ['node', 'memory', 'cores'],
    'the keys node, memory and cores',
)
_NIC = mapping(
    {
        'name': NAME,
        'networks': _list_of({'enum': list(Network)}, 'networks', least=1) | {'uniqueItems': True},
        'speed': SPEED,
        'numa_node': _NODE_NUMBER,
    },
    ['name', 'networks'],
    'the keys name and networks, and optionally speed and numa_node',
)
_HOST = mapping(
    {
        'memory': _MEMORY,
        'rack': NAME,
        'local_disk': SIZE,
        'numa': _list_of(_NUMA_NODE, 'NUMA nodes', least=1),
        'data_devices': _list_of(_device(list(DeviceClass)), 'devices', least=1),
        'db_devices': _list_of(
            _device([one for one in DeviceClass if one.is_flash]), 'devices of flash'
        ),
        'nics': _list_of(_NIC, 'network interfaces', least=1),
    },
    ['memory', 'numa', 'data_devices', 'nics'],
    'the keys memory, numa, data_devices and nics, and optionally db_devices, local_disk and rack',
)
#: The bounds of what an operator may choose, here and on the command line.
DATABASES_PER_HOST = whole_number(1, 1000, 'databases')
OSDS_PER_DEVICE = whole_number(1, 8, 'OSDs')
VCPUS_PER_OSD = {
    'type': 'number',
    'minimum': 0.5,
    'maximum': 32,
    'description': 'a number of CPUs (threads)',
}
_WORKLOAD = mapping(
    {
        'guest_memory': _MEMORY,
        'guest_vcpus': whole_number(1, 512, 'vCPUs'),
        'guest_cpu_percent': {
            'type': 'number',
            'minimum': 1,
            'maximum': 100,
            'description': 'a percentage from 1 to 100',
        },
        'volume': SIZE,
        'root_disk': mapping(
            {'size': SIZE, 'on': {'enum': list(RootDisk)}},
            ['size', 'on'],
            'the keys size and on',
        ),
        'databases_per_host': DATABASES_PER_HOST,
        'replicas': whole_number(0, 100, 'replicas of each database'),
    },
    ['guest_memory', 'guest_vcpus', 'guest_cpu_percent', 'volume', 'root_disk'],
    'the keys guest_memory, guest_vcpus, guest_cpu_percent, volume and root_disk, and optionally '
    'databases_per_host and replicas',
)
_CIDR = {'type': 'string', 'description': 'a network such as 192.0.2.0/24'}
HOSTS_FILE = mapping(
    {
        'copies': whole_number(1, 10, 'copies'),
        'networks': mapping({'public': _CIDR, 'cluster': _CIDR}, [], 'the keys public and cluster'),
        'workload': _WORKLOAD,
        'osds': mapping(
            {'per_device': OSDS_PER_DEVICE, 'vcpus': VCPUS_PER_OSD},
            [],
            'the keys per_device and vcpus',
        ),
        'hosts': {
            'type': 'object',
            'propertyNames': NAME,
            'additionalProperties': _HOST,
            'minProperties': 1,
            'description': 'hosts by their names',
        },
    },
    ['copies', 'workload', 'hosts'],
    'the keys copies, workload and hosts, and optionally networks and osds',
)
