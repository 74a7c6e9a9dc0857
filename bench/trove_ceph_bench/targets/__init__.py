# SPDX-License-Identifier: Apache-2.0
"""Targets: the MySQL servers that a plan can name."""

from collections.abc import Callable, Mapping
from typing import Any

import jsonschema
import jsonschema.exceptions

from trove_ceph import exceptions
from trove_ceph_bench import model
from trove_ceph_bench.targets import created, dsn, instance, server
from trove_ceph_bench.targets.specification import SCHEMA, Settings

__all__ = ('SCHEMA', 'Settings', 'create')

_KINDS: Mapping[str, Callable[[str, Mapping[str, Any], Settings], model.Target]] = {
    'instance': instance.from_spec,
    'dsn': dsn.from_spec,
    'server': server.from_spec,
    'create': created.from_spec,
}


def create(name: str, spec: Mapping[str, Any], settings: Settings) -> model.Target:
    """Return the target of a specification, without contacting the server yet.

    :param name: its name in the results
    :raises InvalidPlanError: the specification is invalid, or the password it names is missing
    """
    kinds = [kind for kind in _KINDS if kind in spec]
    if len(kinds) != 1:
        raise exceptions.InvalidPlanError(
            f'target {name}: expected exactly one of {", ".join(_KINDS)}, found '
            f'{" and ".join(kinds) or "none"}'
        )
    error = jsonschema.exceptions.best_match(
        jsonschema.Draft202012Validator(SCHEMA).iter_errors(spec)
    )
    if error:
        path = error.json_path.removeprefix('$').removeprefix('.')
        raise exceptions.InvalidPlanError(
            f'target {name}: {f"{path}: " if path else ""}{error.message}'
        )
    return _KINDS[kinds[0]](name, spec, settings)
