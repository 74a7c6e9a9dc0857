# SPDX-License-Identifier: Apache-2.0
"""The JSON schemas of the fleet file and of the price table."""

from typing import Any

from trove_ceph.enums import DeviceClass
from trove_ceph.schema_parts import YES_OR_NO, mapping, whole_number
from trove_ceph.sizes import SIZE
from trove_ceph.sizing import fleet

_TEXT = {'type': 'string', 'pattern': '\\S', 'maxLength': 300, 'description': 'a text'}
_CURRENCY = {
    'type': 'string',
    'pattern': '^[A-Z]{3}\\Z',
    'description': 'a currency of three letters, such as USD',
}


def _number(least: float, most: float, unit: str) -> dict[str, Any]:
    return {
        'type': 'number',
        'minimum': least,
        'maximum': most,
        'description': f'a number of {unit}',
    }


def _share(least: float, most: float, whole: str) -> dict[str, Any]:
    return {
        'type': 'number',
        'minimum': least,
        'maximum': most,
        'description': f'a share of {whole}, from {least:g} to {most:g}',
    }


def _positive(most: float, unit: str) -> dict[str, Any]:
    return {
        'type': 'number',
        'exclusiveMinimum': 0,
        'maximum': most,
        'description': f'a number of {unit}, above 0',
    }


_DATABASES = mapping(
    {
        'name': _TEXT,
        'instances': whole_number(1, 10**6, 'databases'),
        'size': SIZE,
        'iops': _positive(10**6, 'operations per second of each database'),
        'iops_per_gib': _positive(10**4, 'operations per second for each GiB'),
    },
    ['instances', 'size'],
    'the keys instances and size, and optionally name, and iops or iops_per_gib',
)
_FLEET = {
    'databases': {
        'type': 'array',
        'items': _DATABASES,
        'minItems': 1,
        'description': 'a list of groups of databases that are alike',
    },
    'growth_percent': {
        'type': 'number',
        'minimum': 0,
        'maximum': 1000,
        'description': 'the percentage by which the fleet grows each year, such as 20',
    },
    'years': _number(0, 20, 'years'),
    'io_size': SIZE,
    'write_share': _share(0, 1, 'operations'),
}
_DEVICE = mapping(
    {
        'class': {'enum': list(DeviceClass)},
        'size': SIZE,
        'iops': _positive(10**7, 'operations per second of a device'),
        'throughput': SIZE
        | {'description': 'bytes in each second with their unit, such as 150MB or 2GB'},
        'osds': whole_number(1, 8, 'OSDs on each device'),
        'db': {'enum': ['none', 'ssd', 'nvme']},
    },
    ['class', 'size'],
    'the keys class and size, and optionally iops, throughput, osds and db',
)
_ERASURE = mapping(
    {'k': whole_number(2, 32, 'data chunks'), 'm': whole_number(1, 16, 'coding chunks')},
    ['k', 'm'],
    'the keys k and m',
)
_RECOVERY = mapping(
    {
        'hours': _positive(1000, 'hours'),
        'share': _share(0.05, 0.9, 'network and devices'),
    },
    [],
    'the keys hours and share',
)
_CLUSTER = mapping(
    {
        'optimised_for': {'enum': list(fleet.Optimisation)},
        'device': _DEVICE,
        'copies': whole_number(2, 10, 'copies'),
        'erasure': _ERASURE,
        'failure_domain': {'enum': list(fleet.FailureDomain)},
        'nodes_per_rack': whole_number(1, 100, 'servers in a rack'),
        'nodes': whole_number(1, 10**4, 'servers'),
        'devices_per_node': whole_number(1, 200, 'devices in a server'),
        'bays': whole_number(1, 200, 'devices that fit into a server'),
        'cores': whole_number(1, 1024, 'physical cores of a server'),
        'network_gbit': whole_number(1, 1600, 'gigabits per second of a server'),
        'monitors': whole_number(1, 99, 'monitors'),
        'fill_percent': _number(1, 95, 'percent'),
        'pgs_per_osd': whole_number(30, 250, 'placement groups on each OSD'),
        'pilot': YES_OR_NO,
        'recovery': _RECOVERY,
    },
    ['device'],
    'the key device, and optional keys of the cluster',
)
_MONEY = _number(0, 10**8, 'units of the currency')
_HARDWARE = mapping(
    {
        'currency': _CURRENCY,
        'node': _MONEY,
        'device': _MONEY,
        'db_device': _MONEY,
        'years': _number(0.5, 20, 'years'),
        'watts': _number(0, 10**5, 'watts'),
        'price_per_kwh': _number(0, 100, 'units of the currency for a kilowatt-hour'),
    },
    ['currency', 'node', 'device', 'years', 'watts', 'price_per_kwh'],
    'the keys currency, node, device, years, watts and price_per_kwh, and optionally db_device',
)
FLEET_FILE = mapping(
    {**_FLEET, 'cluster': _CLUSTER, 'hardware': _HARDWARE},
    ['databases', 'cluster'],
    'the keys databases and cluster',
)

_INCLUDED = mapping(
    {
        'iops': _number(0, 10**6, 'operations per second that the volume has for nothing'),
        'iops_per_gb': _number(0, 10**4, 'operations per second for each GB'),
    },
    ['iops', 'iops_per_gb'],
    'the keys iops and iops_per_gb, each 0 if there are none',
)
_PRICE = mapping(
    {
        'provider': _TEXT,
        'product': _TEXT,
        'region': _TEXT,
        'date': {
            'type': 'string',
            'pattern': '^20[0-9]{2}-(0[1-9]|1[0-2])(-(0[1-9]|[12][0-9]|3[01]))?\\Z',
            'description': 'the month or day of the price, such as 2026-01 or 2026-01-31',
        },
        'source': _TEXT,
        'currency': _CURRENCY,
        'price_per_gb_month': _positive(1000, 'units of the currency'),
        'price_per_iops_month': _number(0, 1000, 'units of the currency'),
        'included': _INCLUDED,
    },
    [
        *('provider', 'product', 'region', 'date', 'source', 'currency'),
        *('price_per_gb_month', 'price_per_iops_month', 'included'),
    ],
    'a price with its provider, product, region, date and source',
)
PRICE_TABLE = mapping(
    {
        'prices': {
            'type': 'array',
            'items': _PRICE,
            'minItems': 1,
            'description': 'a list of prices',
        }
    },
    ['prices'],
    'the key prices',
)
