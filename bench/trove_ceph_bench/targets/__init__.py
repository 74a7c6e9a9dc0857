# SPDX-License-Identifier: Apache-2.0
"""The MySQL servers that a plan can name."""

from collections.abc import Callable, Mapping
from typing import Any

import jsonschema
import jsonschema.exceptions

from trove_ceph import exceptions
from trove_ceph_bench import model
from trove_ceph_bench.targets import dsn, instance, server
from trove_ceph_bench.targets.specification import SCHEMA, Settings

__all__ = ('SCHEMA', 'Settings', 'make')

_KINDS: Mapping[str, Callable[[str, Mapping[str, Any], Settings], model.Target]] = {
    'instance': instance.from_spec,
    'dsn': dsn.from_spec,
    'server': server.from_spec,
}


def make(name: str, spec: Mapping[str, Any], settings: Settings) -> model.Target:
    """Return the target that a part of a plan describes; nothing is asked or changed yet.

    :param name: what the results call it
    :raises InvalidPlanError: the description is wrong, or a password it names is not there
    """
    kinds = [kind for kind in _KINDS if kind in spec]
    if len(kinds) != 1:
        raise exceptions.InvalidPlanError(
            f'target {name}: exactly one of {", ".join(_KINDS)} must be given, not '
            f'{" and ".join(kinds) or "none"}'
        )
    error = jsonschema.exceptions.best_match(
        jsonschema.Draft202012Validator(SCHEMA).iter_errors(spec)
    )
    if error:
        place = error.json_path.removeprefix('$').removeprefix('.')
        raise exceptions.InvalidPlanError(
            f'target {name}: {f"{place}: " if place else ""}{error.message}'
        )
    return _KINDS[kinds[0]](name, spec, settings)
