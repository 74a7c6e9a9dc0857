# SPDX-License-Identifier: Apache-2.0
"""The variables of the environment on which the commands of a plan depend.

The shell replaces them, so the text of a command does not tell what it does.
"""

import re
from collections.abc import Iterable, Mapping

from trove_ceph_bench import results

#: What :func:`trove_ceph_bench.events.environment` sets for a command with a target.
OF_TARGET = frozenset(
    f'BENCH_{name}'
    for name in (
        *('TARGET', 'TARGETS', 'HOST', 'PORT', 'SOCKET', 'USER', 'PASSWORD', 'DATABASE'),
        *('POOL', 'IMAGE', 'CEPH_CONF', 'CEPH_USER'),
    )
)
#: What :mod:`trove_ceph_bench.operations` sets for each attempt.
OF_ATTEMPT = frozenset(
    f'BENCH_{name}' for name in ('OPERATION', 'VARIANT', 'DATA_MIB', 'ITERATION', 'DIRECTORY')
)
_REFERENCE = re.compile(r'\$\{?(BENCH_[A-Z0-9_]+)')


def names(commands: Iterable[str | None]) -> set[str]:
    """Return the names of the variables ``BENCH_…`` that commands refer to."""
    return {name for command in commands if command for name in _REFERENCE.findall(command)}


def values(used: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the values of variables, without those that are empty or hold a password.

    An empty variable is as one that is not set: the text of the command has its default.
    """
    found = {name: environment[name] for name in sorted(used) if environment.get(name)}
    return {name: value for name, value in found.items() if not results.holds_secret({name: value})}
