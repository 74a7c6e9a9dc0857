# SPDX-License-Identifier: Apache-2.0
"""Do once, on a machine that waits, what the first start of MySQL would otherwise wait for.

The first container of a machine starts seconds later than the next one, since docker's programs are
read from the root disk. The container of the rehearsal makes certificates and a key pair for a
database that has none, such as a clone of a golden volume (``make-keys`` of the entrypoint in
MySQL's image). They are for this machine alone, and belong to no tenant before its database has
them.
"""

import docker
from oslo_log import log as logging
from trove.guestagent.common import operating_system

LOG = logging.getLogger(__name__)

#: Trove mounts it in the container of the database, too.
DIRECTORY = '/etc/mysql'
CONTAINER = 'rehearsal'
_COMMAND = 'make-keys'


def run(client: docker.DockerClient, image: str, uid: int, gid: int) -> None:
    """Rehearse; what fails only makes the later start longer. Idempotent.

    :param image: name and tag of MySQL's image
    :param uid: user of the database, to whom the keys belong
    """
    operating_system.ensure_directory(DIRECTORY, user=uid, group=gid, as_root=True)
    try:
        # Docker would pull a missing image, perhaps in vain for minutes.
        client.images.get(image)
        _remove(client)
        try:
            client.containers.run(
                image,
                _COMMAND,
                name=CONTAINER,
                user=f'{uid}:{gid}',
                volumes={DIRECTORY: {'bind': DIRECTORY, 'mode': 'rw'}},
            )
        finally:
            _remove(client)
    except (docker.errors.DockerException, OSError) as error:
        # Such as a time limit, or an image with another entrypoint, which knows no such command.
        LOG.warning('The first start of %s was not rehearsed: %s', image, error)


def _remove(client: docker.DockerClient) -> None:
    """Remove the container, such as that of a rehearsal that was interrupted."""
    for container in client.containers.list(all=True, filters={'name': f'^/{CONTAINER}$'}):
        container.remove(force=True)
