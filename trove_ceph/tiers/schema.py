# SPDX-License-Identifier: Apache-2.0
"""The JSON schema of the tiers file."""

from typing import Any

from trove_ceph.tiers import tier_types

_NAME = {
    'type': 'string',
    'pattern': '^[A-Za-z0-9][A-Za-z0-9._-]*\\Z',
    'description': 'a name of letters, digits, dots, dashes and underscores',
}
_SHARE = {
    'type': 'number',
    'exclusiveMinimum': 0,
    'maximum': 1,
    'description': 'a share above 0 and up to 1',
}
#: The same bounds as the guest's option volume_iops_per_gib.
_RATE = {
    'type': 'number',
    'minimum': 0,
    'maximum': 10000,
    'description': 'a number of operations per second',
}


def _count(least: int, most: int, unit: str) -> dict[str, Any]:
    return {
        'type': 'integer',
        'minimum': least,
        'maximum': most,
        'description': f'a whole number of {unit}',
    }


def _object(properties: dict[str, Any], required: list[str], what: str) -> dict[str, Any]:
    return {
        'type': 'object',
        'properties': properties,
        'required': required,
        'additionalProperties': False,
        'description': what,
    }


_YES_OR_NO = {'type': 'boolean', 'description': 'true or false'}
_PG_NUM = _count(1, 65536, 'placement groups, a power of two')
_PLACEMENT_GROUPS = {
    'anyOf': [
        _object({key: value}, [key], f'one of count, share, autoscale and keep ({key})')
        for key, value in (
            ('count', _PG_NUM),
            ('share', _SHARE),
            ('autoscale', _SHARE),
            ('keep', {'const': True, 'description': 'true'}),
        )
    ],
    'description': 'one of the keys count, share, autoscale and keep with its value',
}
_ERASURE = _object(
    {
        'k': _count(2, 32, 'data chunks'),
        'm': _count(1, 16, 'coding chunks'),
        'plugin': {'enum': ['jerasure', 'isa']},
        'technique': {
            'enum': [
                *('reed_sol_van', 'cauchy_orig', 'cauchy_good', 'cauchy'),
                *('reed_sol_r6_op', 'liberation', 'blaum_roth', 'liber8tion'),
            ]
        },
        'pool': _NAME,
        'min_size': _count(2, 48, 'chunks'),
        'metadata_device_class': _NAME | {'type': ['string', 'null']},
        'metadata_pg_num': _PG_NUM,
    },
    ['k', 'm'],
    'the keys k and m, and optional keys of the code',
)
_COMPRESSION = _object(
    {
        'mode': {'enum': ['none', 'passive', 'aggressive', 'force']},
        'algorithm': {'enum': ['snappy', 'zlib', 'zstd', 'lz4']},
    },
    ['mode'],
    'the key mode, and optionally algorithm',
)
_IOPS = _object(
    {'per_gib': _RATE, 'floor': _count(0, 10**7, 'IOPS'), 'cap': _count(1, 10**7, 'IOPS')},
    ['per_gib', 'floor', 'cap'],
    'the keys per_gib, floor and cap',
)
_VOLUME_TYPE = _object(
    {
        'name': {
            'type': 'string',
            'minLength': 1,
            'maxLength': 255,
            'pattern': '^[^\\s,]([^,]*[^\\s,])?\\Z',
            'description': 'a name without commas, leading blanks and trailing blanks',
        },
        'backend': _NAME,
        'description': {'type': 'string', 'maxLength': 255, 'description': 'a text'},
        'public': _YES_OR_NO,
        'names_backend': _YES_OR_NO,
    },
    ['name', 'backend'],
    'the keys name and backend, and optionally description, public and names_backend',
)
_DATASTORE_VERSIONS = {
    'type': 'array',
    'items': {
        'type': 'string',
        'pattern': '^[^/\\s]+/[^/\\s]+\\Z',
        'description': 'a datastore and its version, such as mysql/9.7.4',
    },
    'uniqueItems': True,
    'description': 'a list such as [mysql/9.7.4]',
}
_TIER = _object(
    {
        'purpose': {'enum': list(tier_types.Purpose)},
        'device_class': _NAME,
        'failure_domain': {'enum': list(tier_types.FAILURE_DOMAINS)},
        'crush_root': _NAME,
        'pool': _NAME,
        'copies': _count(1, 10, 'copies'),
        'allow_single_copy': _YES_OR_NO,
        'min_size': _count(1, 10, 'copies'),
        'erasure': _ERASURE,
        'placement_groups': _PLACEMENT_GROUPS,
        'compression': _COMPRESSION,
        'iops': _IOPS,
        'throughput_mib_per_sec': _count(1, 10**6, 'MiB per second'),
        # Accepted for files of earlier releases; tiers_file.py notes that it has no effect.
        'latency_ms': {},
        'qos': {'enum': list(tier_types.TierLimits)},
        'volume_type': _VOLUME_TYPE,
        'datastore_versions': _DATASTORE_VERSIONS,
        'replicas_on': _NAME,
    },
    ['purpose', 'pool', 'copies', 'placement_groups'],
    'the keys of a tier',
)
_SERVICES = ', '.join(tier_types.SERVICES)
_GRANTS = {
    'type': 'array',
    'items': {
        'type': 'string',
        'pattern': '^[^\\s,;]([^,;]*[^\\s,;])?\\Z',
        'description': 'one grant, such as "profile rbd pool=vms", without commas and semicolons',
    },
    'uniqueItems': True,
    'description': 'a list of grants, such as ["profile rbd pool=vms"]',
}
_USER = _object(
    {
        'role': {'enum': list(tier_types.Role)},
        'tiers': {
            'type': 'array',
            'items': _NAME,
            'minItems': 1,
            'uniqueItems': True,
            'description': 'a list of names of tiers',
        },
        'pools': {
            'type': 'array',
            'items': _NAME,
            'uniqueItems': True,
            'description': 'a list of names of pools',
        },
        'caps': _object(
            dict.fromkeys(tier_types.SERVICES, _GRANTS), [], f'grants by service: {_SERVICES}'
        ),
        'exclusive': _YES_OR_NO,
    },
    [],
    'one of the keys role, pools and caps, and optionally tiers and exclusive',
)
TIERS_FILE = _object(
    {
        'tiers': {
            'type': 'object',
            'propertyNames': _NAME,
            'additionalProperties': _TIER,
            'minProperties': 1,
            'description': 'tiers by their names',
        },
        'users': {
            'type': 'object',
            'propertyNames': {
                'type': 'string',
                'pattern': '^client\\.(?!admin\\Z)[A-Za-z0-9][A-Za-z0-9._-]*\\Z',
                'description': '"client." and a name other than admin',
            },
            'additionalProperties': _USER,
            'description': 'cephx users by their names',
        },
    },
    ['tiers'],
    'the keys tiers and users',
)
