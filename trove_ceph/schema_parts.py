# SPDX-License-Identifier: Apache-2.0
"""Parts of JSON schemas for files that people write.

Each ``description`` completes the sentence "must be …" for :mod:`trove_ceph.schema_problems`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

#: What people name by themselves: a tier, a pool, a host.
NAME = {
    'type': 'string',
    'pattern': '^[A-Za-z0-9][A-Za-z0-9._-]*\\Z',
    'description': 'a name of letters, digits, dots, dashes and underscores',
}
YES_OR_NO = {'type': 'boolean', 'description': 'true or false'}


def whole_number(least: int, most: int, unit: str) -> dict[str, Any]:
    """Return the schema of a whole number.

    :param unit: what is counted, in the plural
    """
    return {
        'type': 'integer',
        'minimum': least,
        'maximum': most,
        'description': f'a whole number of {unit}',
    }


def mapping(properties: Mapping[str, Any], required: Sequence[str], what: str) -> dict[str, Any]:
    """Return the schema of a mapping that has no other keys.

    :param what: what it must be
    """
    return {
        'type': 'object',
        'properties': dict(properties),
        'required': list(required),
        'additionalProperties': False,
        'description': what,
    }
