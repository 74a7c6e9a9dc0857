# SPDX-License-Identifier: Apache-2.0
"""Settings of a Trove instance, for a server that the benchmark runs itself.

``trove-ceph`` are the settings of our guest manager, ``stock`` those of Trove's own template for
the same flavor.
"""

import importlib.util
import re
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

import trove_ceph
from trove_ceph import exceptions
from trove_ceph.conf import guest
from trove_ceph.mysql import my_cnf, tuning

TEMPLATE = 'config.template'
_OURS = Path('trove', 'templates', 'mysql', '9', TEMPLATE)
#: A checkout has its templates beside the package, an installation below its prefix.
_DIRECTORIES = (
    Path(trove_ceph.__file__).resolve().parents[1] / 'etc',
    Path(sys.prefix) / 'share' / 'trove-ceph',
    Path('/usr/share/trove-ceph'),
)
_DEFAULT_VOLUME_GIB = 10
_SERVER_ID = 1


def machine(server: Mapping[str, Any]) -> tuning.Machine:
    """Return the machine to compute settings for, from a plan's specification of a server.

    The default volume has the size of the RBD image, or 10 GiB without one, and the I/O rate of the
    guest agent's defaults.
    """
    volume = server.get('volume', {})
    size_gib = volume.get('size_gib') or server['on'].get('rbd', {}).get('size_gib')
    volume_mib = int((size_gib or _DEFAULT_VOLUME_GIB) * tuning.GIB_IN_MIB)
    defaults = {option.name: option.default for option in guest.OPTS}
    tier = tuning.Tier(
        defaults['volume_iops_per_gib'], defaults['volume_iops_floor'], defaults['volume_iops_cap']
    )
    return tuning.Machine(
        ram_mib=server['flavor']['ram_mib'],
        vcpus=server['flavor']['vcpus'],
        volume_mib=volume_mib,
        volume_iops=volume.get('iops') or tier.volume_iops(volume_mib),
    )


def trove_ceph_options(target: tuning.Machine) -> dict[str, Any]:
    """Return our guest manager's settings for a machine.

    :raises InvalidPlanError: MySQL does not fit into the machine
    """
    for directory in _DIRECTORIES:
        if (directory / _OURS).is_file():
            base = my_cnf.server_options((directory / _OURS).read_text())
            break
    else:
        directories = ', '.join(map(str, _DIRECTORIES))
        raise exceptions.InvalidPlanError(f'profile trove-ceph: no {_OURS} in {directories}')
    try:
        computed = tuning.tune(target).mysqld_options()
    except (exceptions.FlavorTooSmallError, exceptions.VolumeTooSmallError) as error:
        raise exceptions.InvalidPlanError(f'profile trove-ceph: {error}') from error
    return {**base, **computed, 'server_id': _SERVER_ID}


def stock_options(target: tuning.Machine, mysql_version: str) -> dict[str, str]:
    """Return stock Trove's settings for a machine; MySQL may refuse some of them.

    :param mysql_version: text that contains the version, such as the output of ``mysqld --version``
    :raises InvalidPlanError: Trove is not installed
    """
    trove = importlib.util.find_spec('trove')
    if trove is None or not trove.submodule_search_locations:
        raise exceptions.InvalidPlanError('profile stock: Trove is not installed')
    template = Path(trove.submodule_search_locations[0]) / 'templates' / 'mysql' / TEMPLATE
    version = re.search(r'(\d+)\.(\d+)\.(\d+)', mysql_version)
    if not version:
        raise exceptions.InvalidPlanError(f'profile stock: no version in {mysql_version!r}')
    major, minor, patch = map(int, version.groups())
    semantic = types.SimpleNamespace(major=major, minor=minor, patch=patch)
    rendered = jinja2.Template(template.read_text(), autoescape=False).render(
        flavor={'ram': target.ram_mib, 'vcpus': target.vcpus},
        datastore={'semantic_version': semantic},
        server_id=_SERVER_ID,
    )
    return my_cnf.server_options(rendered)
