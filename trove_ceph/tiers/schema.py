# SPDX-License-Identifier: Apache-2.0
"""The JSON schema of the tiers file."""

from trove_ceph.schema_parts import NAME, YES_OR_NO, mapping, whole_number
from trove_ceph.tiers import tier_types

_SHARE = {
    'type': 'number',
    'exclusiveMinimum': 0,
    'maximum': 1,
    'description': 'a share above 0 and up to 1',
}
_LATENCY = {
    'type': 'number',
    'exclusiveMinimum': 0,
    'maximum': 60000,
    'description': 'a number of milliseconds above 0',
}
#: The same bounds as the guest's option volume_iops_per_gib.
_RATE = {
    'type': 'number',
    'minimum': 0,
    'maximum': 10000,
    'description': 'a number of operations per second',
}
_PG_NUM = whole_number(1, 65536, 'placement groups, a power of two')
_PLACEMENT_GROUPS = {
    'anyOf': [
        mapping({key: value} | optional, [key], f'one of count, share, autoscale and keep ({key})')
        for key, value, optional in (
            ('count', _PG_NUM, {}),
            # Ceph refuses a pool that would put more than 250 on an OSD (mon_max_pg_per_osd).
            ('share', _SHARE, {'per_osd': whole_number(30, 250, 'placement groups on each OSD')}),
            ('autoscale', _SHARE, {}),
            ('keep', {'const': True, 'description': 'true'}, {}),
        )
    ],
    'description': 'one of the keys count, share, autoscale and keep with its value',
}
_ERASURE = mapping(
    {
        'k': whole_number(2, 32, 'data chunks'),
        'm': whole_number(1, 16, 'coding chunks'),
        'plugin': {'enum': ['jerasure', 'isa']},
        'technique': {
            'enum': [
                *('reed_sol_van', 'cauchy_orig', 'cauchy_good', 'cauchy'),
                *('reed_sol_r6_op', 'liberation', 'blaum_roth', 'liber8tion'),
            ]
        },
        'pool': NAME,
        'min_size': whole_number(2, 48, 'chunks'),
        'metadata_device_class': NAME | {'type': ['string', 'null']},
        'metadata_pg_num': _PG_NUM,
    },
    ['k', 'm'],
    'the keys k and m, and optional keys of the code',
)
_COMPRESSION = mapping(
    {
        'mode': {'enum': ['none', 'passive', 'aggressive', 'force']},
        'algorithm': {'enum': ['snappy', 'zlib', 'zstd', 'lz4']},
    },
    ['mode'],
    'the key mode, and optionally algorithm',
)
_IOPS = mapping(
    {
        'per_gib': _RATE,
        'floor': whole_number(0, 10**7, 'IOPS'),
        'cap': whole_number(1, 10**7, 'IOPS'),
    },
    ['per_gib', 'floor', 'cap'],
    'the keys per_gib, floor and cap',
)
_VOLUME_TYPE = mapping(
    {
        'name': {
            'type': 'string',
            'minLength': 1,
            'maxLength': 255,
            'pattern': '^[^\\s,]([^,]*[^\\s,])?\\Z',
            'description': 'a name without commas, leading blanks and trailing blanks',
        },
        'backend': NAME,
        'description': {'type': 'string', 'maxLength': 255, 'description': 'a text'},
        'public': YES_OR_NO,
        'names_backend': YES_OR_NO,
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
_TIER = mapping(
    {
        'purpose': {'enum': list(tier_types.Purpose)},
        'device_class': NAME,
        'failure_domain': {'enum': list(tier_types.FAILURE_DOMAINS)},
        'crush_root': NAME,
        'pool': NAME,
        'copies': whole_number(1, 10, 'copies'),
        'allow_single_copy': YES_OR_NO,
        'min_size': whole_number(1, 10, 'copies'),
        'erasure': _ERASURE,
        'placement_groups': _PLACEMENT_GROUPS,
        'compression': _COMPRESSION,
        'iops': _IOPS,
        'throughput_mib_per_sec': whole_number(1, 10**6, 'MiB per second'),
        'latency_ms': _LATENCY,
        'qos': {'enum': list(tier_types.TierLimits)},
        'volume_type': _VOLUME_TYPE,
        'datastore_versions': _DATASTORE_VERSIONS,
        'replicas_on': NAME,
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
_USER = mapping(
    {
        'role': {'enum': list(tier_types.Role)},
        'tiers': {
            'type': 'array',
            'items': NAME,
            'minItems': 1,
            'uniqueItems': True,
            'description': 'a list of names of tiers',
        },
        'pools': {
            'type': 'array',
            'items': NAME,
            'uniqueItems': True,
            'description': 'a list of names of pools',
        },
        'caps': mapping(
            dict.fromkeys(tier_types.SERVICES, _GRANTS), [], f'grants by service: {_SERVICES}'
        ),
        'exclusive': YES_OR_NO,
    },
    [],
    'one of the keys role, pools and caps, and optionally tiers and exclusive',
)
TIERS_FILE = mapping(
    {
        'tiers': {
            'type': 'object',
            'propertyNames': NAME,
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
