# SPDX-License-Identifier: Apache-2.0
"""The pools of the configuration: ``[trove_ceph_guests] pools``."""

import dataclasses
import re
from collections.abc import Sequence

from trove_ceph import exceptions

_FORM = re.compile(
    r'(?P<datastore>[^/:\s]+)/(?P<version>[^:\s]+):(?P<flavor>[^:]+)(:(?P<zone>[^:]+))?'
)
#: As long as the column of its name.
_MAX_LENGTH = 191


@dataclasses.dataclass(frozen=True)
class PoolSpec:
    """A pool as an operator writes it.

    :param name: the whole text, by which records and commands name the pool
    :param version: name of the datastore version
    :param flavor: name or id
    :param zone: the availability zone; None: the servers are requested without one
    """

    name: str
    datastore: str
    version: str
    flavor: str
    zone: str | None = None


def parse(texts: Sequence[str]) -> tuple[PoolSpec, ...]:
    """Return the pools of the option.

    :raises InvalidConfigurationError: a text does not name a pool, or two are equal
    """
    specs = tuple(map(_parse, dict.fromkeys(texts)))
    if len(specs) != len(texts):
        raise exceptions.InvalidConfigurationError(
            '[trove_ceph_guests] pools: names a pool twice; name each pool once'
        )
    return specs


def _parse(text: str) -> PoolSpec:
    found = _FORM.fullmatch(text)
    if found is None or len(text) > _MAX_LENGTH:
        raise exceptions.InvalidConfigurationError(
            f'[trove_ceph_guests] pools: {text!r} is no pool; expected '
            f'DATASTORE/VERSION:FLAVOR[:ZONE] with up to {_MAX_LENGTH} characters'
        )
    return PoolSpec(text, **found.groupdict())
