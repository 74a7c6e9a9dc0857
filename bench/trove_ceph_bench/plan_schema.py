# SPDX-License-Identifier: Apache-2.0
"""The JSON schema of plans."""

from collections.abc import Mapping
from typing import Any

from trove_ceph_bench import dataset as dataset_sizes
from trove_ceph_bench import fio, plan, targets, workloads

_NAME = {
    'type': 'string',
    'pattern': '^[A-Za-z0-9][A-Za-z0-9._-]*$',
    'description': 'a name of letters, digits, dots, dashes and underscores',
}
_TEXT = {'type': 'string', 'minLength': 1, 'description': 'a text'}
_COMMAND = {'type': 'string', 'minLength': 1, 'description': 'a shell command'}
_ROLE = {'enum': ['subject', 'baseline', 'control']}
_FLAG = {'type': 'boolean', 'description': 'true or false'}
_EVENT = {
    'type': 'object',
    'properties': {
        'at_sec': {'type': 'number', 'minimum': 0, 'description': 'a number of seconds'},
        'name': _NAME,
        'command': _COMMAND,
        'variants': {'type': 'array', 'items': _NAME, 'minItems': 1, 'uniqueItems': True},
    },
    'required': ['at_sec', 'name', 'command'],
    'additionalProperties': False,
}
_RATIO = {
    'type': 'object',
    'properties': {'name': _NAME, 'of': _NAME, 'to': _NAME, 'reference': _NAME},
    'required': ['name', 'of', 'to'],
    'additionalProperties': False,
}


def _list_of(items: Mapping[str, Any], unique: bool = True) -> dict[str, Any]:
    return {'type': 'array', 'items': items, 'minItems': 1, 'uniqueItems': unique}


def _count(minimum: int, unit: str) -> dict[str, Any]:
    return {'type': 'integer', 'minimum': minimum, 'description': f'a whole number of {unit}'}


def load_plan() -> dict[str, Any]:
    """Return the JSON schema of a plan of loads."""
    variant = {
        'type': 'object',
        'properties': {
            'name': _NAME,
            'role': _ROLE,
            'target': targets.SCHEMA,
            'targets': _list_of(targets.SCHEMA),
            'count': _count(1, 'targets'),
            'prepare': _COMMAND,
        },
        'required': ['name', 'role'],
        'additionalProperties': False,
    }
    dataset = {
        'type': 'string',
        'pattern': dataset_sizes.PATTERN,
        'description': dataset_sizes.EXPECTED,
    }
    properties = {
        'name': _NAME,
        'description': _TEXT,
        'prepare': _COMMAND,
        'cleanup': _COMMAND,
        'variants': _list_of(variant),
        'reference': _NAME,
        'workloads': _list_of({'enum': list(workloads.names())}),
        'datasets': _list_of(dataset),
        'buffer_pool_mib': _count(1, 'MiB'),
        'threads': _list_of(_count(1, 'threads')),
        'instances': _list_of(_count(1, 'instances')),
        'repeats': _count(1, 'repeats'),
        'warmup_sec': _count(0, 'seconds'),
        'measure_sec': _count(1, 'seconds'),
        'tables': _count(1, 'tables'),
        'fill_percent': _list_of(
            {
                'type': 'number',
                'minimum': 1,
                'maximum': 99,
                'description': 'a percentage from 1 to 99',
            }
        ),
        'scale': {
            'type': 'number',
            'exclusiveMinimum': 0,
            'maximum': 1,
            'description': 'a share of the full size, above 0 and at most 1',
        },
        'committer': _FLAG,
        'restart': _FLAG,
        'fio': _list_of({'enum': list(fio.JOBS)}),
        'events': {'type': 'array', 'items': _EVENT},
        'ratios': {'type': 'array', 'items': _RATIO},
    }
    return {
        'type': 'object',
        'properties': properties,
        'required': ['name', 'description', 'variants', 'workloads', 'datasets'],
        'additionalProperties': False,
    }


def operations_plan() -> dict[str, Any]:
    """Return the JSON schema of a plan of operations."""
    contender = {
        'type': 'object',
        'properties': {
            'name': _NAME,
            'role': _ROLE,
            'operation': _NAME,
            'target': targets.SCHEMA,
            'prepare': _COMMAND,
            'run': _COMMAND,
            'check': _COMMAND,
            'cleanup': _COMMAND,
            'cost': {
                'type': 'object',
                'properties': dict.fromkeys(plan.COSTS, _COMMAND),
                'additionalProperties': False,
            },
            'timeout_sec': _count(1, 'seconds'),
            'repeats': _count(1, 'repeats'),
        },
        'required': ['name', 'role', 'operation', 'run'],
        'additionalProperties': False,
    }
    operations = {
        'type': 'object',
        'properties': {
            'sizes_mib': _list_of(_count(1, 'MiB')),
            'repeats': _count(1, 'repeats'),
            'committer': _FLAG,
            'settle_sec': _count(0, 'seconds'),
            'cleanup': _COMMAND,
            'contenders': _list_of(contender),
        },
        'required': ['sizes_mib', 'contenders'],
        'additionalProperties': False,
    }
    return {
        'type': 'object',
        'properties': {'name': _NAME, 'description': _TEXT, 'operations': operations},
        'required': ['name', 'operations'],
        'additionalProperties': False,
    }
