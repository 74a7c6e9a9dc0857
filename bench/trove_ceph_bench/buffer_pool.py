# SPDX-License-Identifier: Apache-2.0
"""Whether the data of a load fit the buffer pool of a server: its reads are from memory then.

Such a load measures commits and flushed pages of the storage, and none of its reads.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph_bench import dataset, model, plan
from trove_ceph_bench.targets import profiles

VARIABLE = 'innodb_buffer_pool_size'
#: MySQL's default.
_DEFAULT_BYTES = 128 * units.Mi
_UNITS = {'': 1, 'K': units.Ki, 'M': units.Mi, 'G': units.Gi, 'T': units.Ti}


def fits(data: model.Dataset, pool_bytes: int | None) -> bool:
    """Return whether data fit a buffer pool; a pool of unknown size holds none."""
    return pool_bytes is not None and dataset.stored_bytes(data) <= pool_bytes


def disclosed_bytes(target: Mapping[str, Any]) -> int | None:
    """Return the buffer pool of a server that was measured; None if it is unknown."""
    variables = (target.get('mysql') or {}).get('variables') or {}
    return _bytes(variables.get(VARIABLE))


def planned_bytes(target: Mapping[str, Any]) -> int | None:
    """Return the buffer pool of a server that a plan makes; None if the plan does not tell it.

    An instance that the plan creates has the settings of our guest manager for its flavor, unless a
    configuration group changes them.
    """
    server = target.get('server', {})
    create = target.get('create', {})
    if VARIABLE in server.get('options', {}):
        return _bytes(server['options'][VARIABLE])
    if server.get('profile') == 'trove-ceph':
        return _tuned_bytes(server)
    if 'ram_mib' in create.get('flavor', {}) and 'configuration' not in create:
        volume = {'size_gib': create['volume_gib']}
        return _tuned_bytes({'flavor': create['flavor'], 'volume': volume, 'on': {}})
    if server and server.get('profile', 'none') == 'none' and 'my_cnf' not in server:
        return _DEFAULT_BYTES
    return None


def warnings(loads: plan.LoadPlan, only: Sequence[str] = ()) -> Iterator[str]:
    """Yield a line for each dataset that would fit the buffer pool of a variant.

    ``cached`` is meant to. What depends on a server that the plan does not make is unknown before
    the run; the report says it.
    """
    (reference,) = [each for each in loads.variants if each.name == loads.reference]
    pool_bytes = planned_bytes(reference.targets[0])
    if loads.buffer_pool_mib is not None:
        pool_bytes = loads.buffer_pool_mib * units.Mi
    for name in loads.datasets:
        if name == 'cached' or (pool_bytes is None and dataset.is_relative(name)):
            continue
        data = dataset.for_name(name, pool_bytes, loads.tables, loads.scale)
        variants = [each for each in loads.variants if not only or each.name in only]
        for variant in variants:
            planned = max((planned_bytes(each) or 0 for each in variant.targets), default=0)
            if fits(data, planned):
                yield (
                    f'{name}: {dataset.stored_bytes(data) // units.Mi} MiB of data fit the buffer '
                    f'pool of {variant.name}, {planned // units.Mi} MiB: its reads do not reach '
                    'the storage; take more data, or a smaller buffer pool'
                )


def _tuned_bytes(server: Mapping[str, Any]) -> int | None:
    # Of a plan that cannot be run, the run says what is wrong.
    if 'flavor' not in server:
        return None
    try:
        options = profiles.trove_ceph_options(profiles.machine(server))
    except exceptions.InvalidPlanError:
        return None
    return _bytes(options[VARIABLE])


def _bytes(value: Any) -> int | None:
    """Return a size as MySQL writes it, such as ``600M``."""
    found = re.fullmatch(r'(\d+)([KMGT]?)', str(value).upper())
    return int(found[1]) * _UNITS[found[2]] if found else None
