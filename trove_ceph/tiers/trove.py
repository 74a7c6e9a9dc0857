# SPDX-License-Identifier: Apache-2.0
"""The one place where tiers speak to Trove: which volume types a datastore version may use.

Trove's API shows these associations, but only ``trove-manage`` changes them, on a host that has
Trove's configuration. It says what it did in prose and ends with 0 whatever happened, so every
change has to be looked at afterwards.
"""

from collections.abc import Callable, Iterable
from typing import Any

import keystoneauth1.exceptions
import openstack
import openstack.exceptions

from trove_ceph import exceptions
from trove_ceph.host import commands
from trove_ceph.tiers import resources

_FOUND = ', Volume Type: '
_NONE = 'No Volume Type Associations found'
#: What is said of a version and of a datastore that is not there.
_NOT_THERE = ('cannot be found', 'DBDatastore Not Found')
_TIMEOUT_SEC = 180


def list_versions(database: Any = None) -> list[str]:
    """Return the ``datastore/version`` names that Trove's API shows.

    :param database: a keystoneauth1.adapter.Adapter for Trove; None: of the OS_* variables or
        clouds.yaml
    :raises ServiceUnavailableError: it refuses or does not answer
    """
    try:
        response = (database or openstack.connect().database).get('/datastores')
        openstack.exceptions.raise_from_response(response)
        found = response.json()['datastores']
    except (
        keystoneauth1.exceptions.ClientException,
        openstack.exceptions.OpenStackCloudException,
    ) as error:
        raise exceptions.ServiceUnavailableError(
            f'Trove does not tell its datastores: {error}; name their versions with '
            f'--datastore-version, or leave Trove out with --only ceph --only cinder'
        ) from error
    names = (f'{each["name"]}/{version["name"]}' for each in found for version in each['versions'])
    # Versions of the same name differ in their number only, and share associations by name.
    return list(dict.fromkeys(names))


class Trove:
    """Trove behind one database.

    Every method raises StorageCommandError when ``trove-manage`` does not run, and
    ServiceUnavailableError when it says something unexpected.

    :param program: ``trove-manage``, or its path
    :param conf: path of trove.conf
    """

    def __init__(self, program: str, conf: str, run: Callable[..., str] = commands.run):
        self._program = program
        self._conf = conf
        self._run = run

    def observe(self, versions: Iterable[str]) -> resources.TroveState:
        """Return the associations of some versions, each ``datastore/version``."""
        return resources.TroveState({version: self._associations(version) for version in versions})

    def associate(self, version: str, volume_type: str) -> None:
        """Allow a volume type; the next observation tells whether it worked."""
        self._manage('add', version, volume_type)

    def dissociate(self, version: str, volume_type: str) -> None:
        """Allow a volume type, by the name or id that was observed, no longer."""
        self._manage('delete', version, volume_type)

    def _associations(self, version: str) -> frozenset[str] | None:
        lines = self._manage('list', version).splitlines()
        found = [line.split(_FOUND, 1)[1] for line in lines if _FOUND in line]
        if found:
            return frozenset(found)
        if any(line.startswith(_NONE) for line in lines):
            return frozenset()
        if any(words in line for line in lines for words in _NOT_THERE):
            return None
        raise exceptions.ServiceUnavailableError(
            f'{self._program} does not tell the volume types of {version}: {" ".join(lines)[-300:]}'
        )

    def _manage(self, verb: str, version: str, *words: str) -> str:
        return self._run(
            *(self._program, '--config-file', self._conf),
            f'datastore_version_volume_type_{verb}',
            *version.split('/', 1),
            *words,
            timeout_sec=_TIMEOUT_SEC,
        )
