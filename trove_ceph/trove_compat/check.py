# SPDX-License-Identifier: Apache-2.0
"""Refuse to start on a Trove that this release of trove_ceph does not fit."""

import importlib.metadata

from trove_ceph import exceptions
from trove_ceph.trove_compat import hooks, window


def check(service: hooks.Service) -> None:
    """Check the version of the installed Trove, and the private parts that a service needs.

    Every problem is named, with the package to install or the option to change.

    :raises UnsupportedTroveError: the service must not start; nothing is done
    """
    version = _installed_version()
    problems = []
    if not window.includes(version):
        problems.append(f'expected version {window.LEAST} to {window.NEWEST}')
    problems += filter(None, (hook.find_problem() for hook in service.hooks))
    if problems:
        raise exceptions.UnsupportedTroveError(
            f'{service.name}: Trove {version} does not fit: {"; ".join(problems)}. Install '
            f"'{window.REQUIREMENT}' or the release of trove-ceph for it, or {service.without}"
        )


def _installed_version() -> str:
    try:
        return importlib.metadata.version('trove')
    except importlib.metadata.PackageNotFoundError as error:
        raise exceptions.UnsupportedTroveError(
            f"the Python package trove is not installed: install '{window.REQUIREMENT}'"
        ) from error
