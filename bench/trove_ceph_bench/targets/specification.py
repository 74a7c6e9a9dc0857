# SPDX-License-Identifier: Apache-2.0
"""The JSON schema of targets in plans, and the settings of targets from outside the plan."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DEFAULT_CACHE = '/var/cache/trove-ceph'
DEFAULT_CEPH_CONF = '/etc/ceph/ceph.conf'
DEFAULT_CEPH_USER = 'admin'


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings that do not distinguish one measurement from another.

    :param environment: holds the variable of ``password_env`` and ``TROVE_CEPH_CACHE``
    :param directory: for the workspaces of servers that the benchmark runs; None means the
        directory for temporary files
    """

    environment: Mapping[str, str] = dataclasses.field(default_factory=lambda: dict(os.environ))
    directory: Path | None = None

    @property
    def cache(self) -> Path:
        """The directory of built MySQL root file systems."""
        return Path(self.environment.get('TROVE_CEPH_CACHE', DEFAULT_CACHE))


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {'type': 'string', 'minLength': 1, 'description': description, **more}


def _object(properties: Mapping[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        'type': 'object',
        'properties': dict(properties),
        'required': list(required),
        'additionalProperties': False,
    }


def _count(description: str) -> dict[str, Any]:
    return {'type': 'integer', 'minimum': 1, 'description': description}


_OPTIONS = {
    'type': 'object',
    'additionalProperties': {
        'type': ['string', 'number', 'boolean'],
        'description': 'a text, a number, or true or false',
    },
    'description': 'names and values',
}
_CEPH = {
    'conf': _text('path of the ceph.conf'),
    'user': _text('cephx user without "client."'),
}
#: The location in Ceph of the data of an existing server.
_RBD_LOCATION = {
    'image': _text('an RBD image as pool/name', pattern='^[^/]+/[^/]+$'),
    'ceph': _object({**_CEPH, 'pool': _text('the pool that holds the image')}),
}

_INSTANCE = _object(
    {
        'instance': _text('name or id of a Trove instance'),
        'address': _text('host or host:port'),
        **_RBD_LOCATION,
    },
    ('instance',),
)
_DSN = _object(
    {
        'dsn': _text('mysql://user@host:port, without a password', pattern='^mysql://'),
        'password_env': _text('name of the environment variable that holds the password'),
        'password_file': _text('path of a file that holds the password'),
        **_RBD_LOCATION,
    },
    ('dsn',),
)
_RBD = _object(
    {
        **_CEPH,
        'pool': _text('the pool for the image'),
        'size_gib': {'type': 'number', 'minimum': 0.5, 'description': 'size of the image in GiB'},
        'keep': {'type': 'boolean', 'description': 'true or false'},
        'direct': {'type': 'boolean', 'description': 'true for no librbd cache, or false'},
        'read_ahead_kib': {'type': 'integer', 'minimum': 0, 'description': 'a number of KiB'},
        'image_options': _OPTIONS,
    },
    ('pool', 'size_gib'),
)
_SERVER = _object(
    {
        'mysqld': {
            'anyOf': [
                _object({'rootfs': _text('auto, or the path of a root file system')}, ('rootfs',)),
                _object({'binary': _text('path of a mysqld')}, ('binary',)),
            ]
        },
        'profile': {'enum': ['trove-ceph', 'stock', 'none']},
        'flavor': _object(
            {'ram_mib': _count('memory in MiB'), 'vcpus': _count('a number of processors')},
            ('ram_mib', 'vcpus'),
        ),
        'volume': _object(
            {
                'size_gib': _count('the size in GiB that settings are computed for'),
                'iops': _count('operations per second that settings are computed for'),
            }
        ),
        'options': _OPTIONS,
        'my_cnf': _text('path of a my.cnf'),
        'on': {
            'anyOf': [
                _object({'local': _text('a directory')}, ('local',)),
                _object({'path': _text('a mount point')}, ('path',)),
                _object({'rbd': _RBD}, ('rbd',)),
            ]
        },
    },
    ('mysqld', 'on'),
)

_CREATE = _object(
    {
        'name': _text('a name that begins with bench-', pattern='^bench-[A-Za-z0-9._-]+$'),
        'like': _text('name or id of the instance to take datastore and networks from'),
        'flavor': {
            'anyOf': [
                _object(
                    {'ram_mib': _count('memory in MiB'), 'vcpus': _count('a number of processors')},
                    ('ram_mib', 'vcpus'),
                ),
                _object({'name': _text('name or id of a flavor')}, ('name',)),
            ],
        },
        'volume_gib': _count('a number of GiB'),
        'volume_type': _text('a volume type'),
        'zone': _text('an availability zone'),
        'configuration': _text('name or id of a configuration group'),
    },
    ('name', 'like', 'flavor', 'volume_gib'),
)
#: Distinguishes targets that are equal otherwise.
_NUMBER = _count('a number from 1 on')

#: The JSON schema of a target.
SCHEMA: Mapping[str, Any] = {
    'anyOf': [
        _INSTANCE,
        _DSN,
        _object({'server': _SERVER, 'number': _NUMBER}, ('server',)),
        _object({'create': _CREATE, **_RBD_LOCATION, 'number': _NUMBER}, ('create',)),
    ],
}
