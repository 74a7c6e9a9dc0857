# SPDX-License-Identifier: Apache-2.0
"""The tiers' adapter to Trove: the volume types that a datastore version may use.

Trove's API shows these associations, but only ``trove-manage`` changes them, on a host with Trove's
configuration. It reports in prose and exits with 0 even if it fails, so the caller has to verify
every change.
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
#: Parts of the messages about a missing version and a missing datastore.
_MISSING = ('cannot be found', 'DBDatastore Not Found')
_TIMEOUT_SEC = 180


def list_versions(database: Any = None) -> list[str]:
    """Return the ``datastore/version`` names that Trove's API shows.

    :param database: a keystoneauth1.adapter.Adapter for Trove; None: the cloud of the OS_*
        variables or of clouds.yaml
    :raises ServiceUnavailableError: Trove refuses or does not answer
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
            f'Trove does not list its datastores: {error}; name their versions with '
            f'--datastore-version, or leave Trove out with --only ceph --only cinder'
        ) from error
    names = (f'{each["name"]}/{version["name"]}' for each in found for version in each['versions'])
    # Versions of the same name differ in their number only and share associations.
    return list(dict.fromkeys(names))


class Trove:
    """Trove, managed by ``trove-manage``.

    Every method raises StorageCommandError when ``trove-manage`` does not run, and
    ServiceUnavailableError when its output is unexpected.

    :param program: name or path of ``trove-manage``
    :param conf: path of trove.conf
    :param run: runs a command and returns its output
    """

    def __init__(self, program: str, conf: str, run: Callable[..., str] = commands.run):
        self._program = program
        self._conf = conf
        self._run = run

    def observe(self, versions: Iterable[str]) -> resources.TroveState:
        """Return the associations of some versions, each ``datastore/version``."""
        return resources.TroveState({version: self._associations(version) for version in versions})

    def associate(self, version: str, volume_type: str) -> None:
        """Allow a volume type; the caller verifies by a new observation."""
        self._manage('add', version, volume_type)

    def dissociate(self, version: str, volume_type: str) -> None:
        """Disallow a volume type, given by its observed name or id."""
        self._manage('delete', version, volume_type)

    def _associations(self, version: str) -> frozenset[str] | None:
        lines = self._manage('list', version).splitlines()
        found = [line.split(_FOUND, 1)[1] for line in lines if _FOUND in line]
        if found:
            return frozenset(found)
        if any(line.startswith(_NONE) for line in lines):
            return frozenset()
        if any(words in line for line in lines for words in _MISSING):
            return None
        raise exceptions.ServiceUnavailableError(
            f'{self._program} does not list the volume types of {version}: {" ".join(lines)[-300:]}'
        )

    def _manage(self, verb: str, version: str, *words: str) -> str:
        return self._run(
            *(self._program, '--config-file', self._conf),
            f'datastore_version_volume_type_{verb}',
            *version.split('/', 1),
            *words,
            timeout_sec=_TIMEOUT_SEC,
        )
