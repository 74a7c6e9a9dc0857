# SPDX-License-Identifier: Apache-2.0
"""The description of existing volume types in a tiers file."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from trove_ceph.tiers import desired, resources
from trove_ceph.tiers.tier_types import Purpose

_MIB = 1024**2
#: The keys of QoS specs from which the limits of a tier are read.
_PER_GB, _LEAST, _MOST, _FIXED, _BYTES = (
    *('total_iops_sec_per_gb', 'total_iops_sec_per_gb_min', 'total_iops_sec_max'),
    *('total_iops_sec', 'total_bytes_sec'),
)
_VERSION = re.compile(r'[^/\s]+/[^/\s]+')
_TYPE_NAME = re.compile(r'[^\s,]([^,]*[^\s,])?')
#: Cinder creates this type at installation and uses it for requests without a type.
_DEFAULT = '__DEFAULT__'


@dataclasses.dataclass(frozen=True)
class Found:
    """The keys of a tier that describe Cinder and Trove.

    :param name: name of the volume type; None: there is none
    """

    name: str | None
    keys: dict[str, Any]
    notes: list[str]


def describe(
    backend: resources.RbdBackend,
    cinder: resources.CinderState | None,
    trove: resources.TroveState | None,
    purpose: Purpose,
) -> Found:
    """Return the volume type that offers a back end, its limits, and the versions that use it.

    A tier has one type. Of several, types that datastore versions may use come first, then types in
    alphabetical order.
    """
    assert cinder
    allowed = _allowed(cinder, trove)
    named = sorted(
        (each for each in cinder.types.values() if each.backend == backend.name),
        key=lambda each: (not _versions(each.name, allowed), each.name),
    )
    free = [each for each in cinder.types.values() if each.backend is None]
    if not named and len(cinder.backends or ()) == 1:
        # With a single back end, types without one also lead to it.
        named = sorted(free, key=lambda each: each.name != _DEFAULT)
    named = [each for each in named if _TYPE_NAME.fullmatch(each.name)]
    if not named:
        return Found(None, {}, [])
    chosen, *others = named
    notes = [
        f'volume type {other.name} uses the same back end {backend.name} and stays as it is'
        for other in others
    ]
    volume_type: dict[str, Any] = {'name': chosen.name, 'backend': backend.name}
    if chosen.description:
        volume_type['description'] = chosen.description
    volume_type['public'] = chosen.public
    if chosen.backend is None:
        volume_type['names_backend'] = False
    keys: dict[str, Any] = {'volume_type': volume_type, **_limits(chosen, cinder)}
    versions = _versions(chosen.name, allowed)
    if versions and purpose is Purpose.DATA:
        keys['datastore_versions'] = versions
    return Found(chosen.name, keys, notes)


def _allowed(
    cinder: resources.CinderState, trove: resources.TroveState | None
) -> dict[str, set[str]]:
    """Return the names of the volume types that each datastore version may use."""
    found = trove.associations if trove else {}
    return {
        version: {cinder.type_names.get(each, each) for each in types or ()}
        for version, types in found.items()
    }


def _versions(name: str, allowed: Mapping[str, set[str]]) -> list[str]:
    return [
        version
        for version, types in allowed.items()
        if name in types and _VERSION.fullmatch(version)
    ]


def _limits(volume_type: resources.VolumeType, cinder: resources.CinderState) -> dict[str, Any]:
    """Return the limits of a type's QoS specs, and who enforces them."""
    specs = cinder.qos.get(volume_type.qos or '')
    if specs is None:
        # Unused specs that look like ours would be removed by the plan.
        unused = cinder.qos.get(volume_type.name)
        return {'qos': 'keep'} if unused and desired.is_derived_here(unused) else {}
    promise = _promise(specs.specs)
    if specs.name == volume_type.name and _is_exact(specs, promise):
        return {**promise, 'qos': 'front-end'}
    return {**promise, 'qos': 'keep'}


def _promise(specs: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    numbers = {key: int(value) for key, value in specs.items() if re.fullmatch('[0-9]+', value)}
    if _FIXED in numbers and 0 < numbers[_FIXED] <= 10**7:
        limit = numbers[_FIXED]
        found['iops'] = {'per_gib': 0, 'floor': limit, 'cap': limit}
    elif 0 < numbers.get(_PER_GB, 0) <= 10000:
        cap, least = numbers.get(_MOST, 10**7), numbers.get(_LEAST, 0)
        if 0 < cap <= 10**7 and least <= cap:
            found['iops'] = {'per_gib': numbers[_PER_GB], 'floor': least, 'cap': cap}
    mib, rest = divmod(numbers.get(_BYTES, 0), _MIB)
    if 0 < mib <= 10**6 and not rest:
        found['throughput_mib_per_sec'] = mib
    return found


def _is_exact(specs: resources.QosSpecs, promise: Mapping[str, Any]) -> bool:
    """Return whether the front-end limits derived from a promise equal these specs."""
    if not promise or specs.consumer != 'front-end':
        return False
    expected: dict[str, str] = {}
    if iops := promise.get('iops'):
        expected = {
            _PER_GB: str(iops['per_gib']),
            _LEAST: str(iops['floor']),
            _MOST: str(iops['cap']),
        }
        if iops['per_gib'] < 1:
            return False
    if mib := promise.get('throughput_mib_per_sec'):
        expected[_BYTES] = str(mib * _MIB)
    return dict(specs.specs) == expected
