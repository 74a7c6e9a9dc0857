# SPDX-License-Identifier: Apache-2.0
"""The schemas of requests; each ``description`` completes the sentence "must be …"."""

from typing import Any

from trove_ceph.db.failover_record import Preference
from trove_ceph.db.policy_record import Scope
from trove_ceph.enums import QuiesceLevel

_ID = r'^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}\Z'
_MAX_COUNT = 1000
_YEAR_HOURS = 366 * 24
_YEAR_MIN = _YEAR_HOURS * 60


def _count(maximum: int, minimum: int = 0) -> dict[str, Any]:
    return {
        'type': 'integer',
        'minimum': minimum,
        'maximum': maximum,
        'description': f'a number from {minimum} to {maximum}',
    }


def _count_or_null(maximum: int) -> dict[str, Any]:
    count = _count(maximum)
    description = f'{count["description"]}, or null'
    return count | {'type': ['integer', 'null'], 'description': description}


_LEVEL = {
    'type': ['string', 'null'],
    'pattern': rf'^({"|".join(QuiesceLevel)})\Z',
    'description': f'one of {", ".join(QuiesceLevel)}, or null',
}
_INSTANCE = {'type': 'string', 'pattern': _ID, 'description': "an instance's id"}
_FLAG = {'type': 'boolean', 'description': 'true or false'}
# Trove's tables may be in MySQL's utf8mb3, which has no characters beyond these.
_PRINTABLE = r'[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\U00010000-\U0010ffff]'
_LINE = {
    'type': ['string', 'null'],
    'pattern': rf'^{_PRINTABLE}{{0,255}}\Z',
    'description': 'one line of up to 255 characters, without emoji',
}

BACKUP: dict[str, Any] = {
    'type': 'object',
    'required': ['instance', 'name'],
    'additionalProperties': False,
    'properties': {
        'instance': _INSTANCE,
        'name': {
            'type': 'string',
            'pattern': rf'^{_PRINTABLE}{{0,254}}[0-9a-zA-Z]{_PRINTABLE}{{0,254}}\Z',
            'maxLength': 255,
            'description': 'a name with a letter or a digit, in one line and without emoji',
        },
        'description': _LINE,
        'quiesce': _LEVEL,
        'copy': _FLAG,
        'verify': _FLAG,
    },
}

FAILOVER: dict[str, Any] = {
    'type': 'object',
    'required': ['instance'],
    'additionalProperties': False,
    'properties': {
        'instance': _INSTANCE,
        'reason': _LINE,
        'force': _FLAG,
    },
}

REPROVISION: dict[str, Any] = {
    'type': 'object',
    'additionalProperties': False,
    'properties': {'reason': _LINE},
}

_PERIODS = ('last', 'hourly', 'daily', 'weekly', 'monthly')
_CHANGEABLE: dict[str, Any] = {
    'name': {
        'type': 'string',
        'pattern': r'^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z',
        'description': 'up to 64 letters, digits and any of ._-',
    },
    'enabled': _FLAG,
    'interval_min': _count(_YEAR_MIN, 1),
    'at': {
        'type': ['string', 'null'],
        'pattern': r'^([01][0-9]|2[0-3]):[0-5][0-9]\Z',
        'description': 'a time of day such as 02:30',
    },
    'timezone': {
        'type': 'string',
        'maxLength': 64,
        'pattern': r'^[A-Za-z0-9/_+-]+\Z',
        'description': 'the name of a time zone such as Europe/Berlin',
    },
    'keep': {
        'type': 'object',
        'additionalProperties': False,
        'properties': {period: _count(_MAX_COUNT) for period in _PERIODS},
        'description': f'an object with some of the keys {", ".join(_PERIODS)}',
    },
    'copy_every': _count(_MAX_COUNT),
    'verify_every': _count(_MAX_COUNT),
    'quiesce': _LEVEL,
}

POLICY_CHANGES: dict[str, Any] = {
    'type': 'object',
    'minProperties': 1,
    'additionalProperties': False,
    'properties': _CHANGEABLE,
}

POLICY: dict[str, Any] = {
    'type': 'object',
    'required': ['name', 'scope', 'target', 'interval_min', 'keep'],
    'additionalProperties': False,
    'properties': {
        **_CHANGEABLE,
        'scope': {'enum': [str(scope) for scope in Scope]},
        'target': {
            'type': 'string',
            'pattern': r'^\S{1,255}\Z',
            'description': "an instance's id, a datastore or datastore/version, or a tier's name",
        },
    },
}

_FAILOVER_POLICY_VALUES: dict[str, Any] = {
    'enabled': _FLAG,
    'prefer': {'enum': [str(one) for one in Preference]},
}

FAILOVER_POLICY_CHANGES: dict[str, Any] = {
    'type': 'object',
    'minProperties': 1,
    'additionalProperties': False,
    'properties': _FAILOVER_POLICY_VALUES,
}

FAILOVER_POLICY: dict[str, Any] = {
    'type': 'object',
    'required': ['scope', 'target'],
    'additionalProperties': False,
    'properties': {
        **_FAILOVER_POLICY_VALUES,
        'scope': {'enum': [str(scope) for scope in (Scope.INSTANCE, Scope.DATASTORE)]},
        'target': {
            'type': 'string',
            'pattern': r'^\S{1,255}\Z',
            'description': "an instance's id, a datastore or datastore/version",
        },
    },
}

REPLICATION_POLICY: dict[str, Any] = {
    'type': 'object',
    'additionalProperties': False,
    'properties': {
        'semi_sync': _FLAG,
        'reprovision_every_hours': _count_or_null(_YEAR_HOURS),
        'max_own_percent': _count_or_null(100),
        'max_lag_sec': _count_or_null(_YEAR_HOURS * 3600),
        'replica_volume_type': {
            'type': ['string', 'null'],
            'pattern': r'^.{1,255}\Z',
            'description': 'the name of a volume type, or null',
        },
    },
}
