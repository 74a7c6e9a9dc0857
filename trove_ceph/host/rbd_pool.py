# SPDX-License-Identifier: Apache-2.0
"""Create and remove RBD images for benchmarks, with the ``rbd`` command."""

import json
import re
import time
from collections.abc import Callable
from typing import Any

from trove_ceph import exceptions
from trove_ceph.host import commands

#: A client that was killed counts as a watcher for 30 s (osd_client_watch_timeout).
WATCHER_TIMEOUT_SEC = 45
_POLL_SEC = 2
_REMOVE_TIMEOUT_SEC = 300
_NO_POOL = re.compile(r'(listing images failed|error opening (default )?pool.*): \(2\)')


class RbdPool:
    """One pool; every method raises StorageCommandError when Ceph refuses or does not answer.

    :param conf: path of the cluster's ceph.conf
    :param user: cephx name without ``client.``
    """

    def __init__(
        self,
        conf: str,
        user: str,
        pool: str,
        run: Callable[..., str] = commands.run,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.conf = conf
        self.user = user
        self.pool = pool
        self._run = run
        self._sleep = sleep

    def create_image(self, name: str, size_gib: float) -> None:
        """Create an image; fail if it exists."""
        self._rbd('create', '--size', f'{round(size_gib * 1024)}M', f'{self.pool}/{name}')

    def resize_image(self, name: str, size_mib: int) -> None:
        """Change the size of an image; data beyond a smaller size are deleted."""
        self._rbd(
            *('resize', '--no-progress', '--allow-shrink', '--size', f'{size_mib}M'),
            f'{self.pool}/{name}',
            timeout_sec=_REMOVE_TIMEOUT_SEC,
        )

    def ensure_no_image(self, name: str) -> None:
        """Remove an image if it exists; wait until watches of killed clients expire."""
        tries = WATCHER_TIMEOUT_SEC // _POLL_SEC
        while self.has_image(name):
            try:
                self._rbd(
                    *('remove', '--no-progress', f'{self.pool}/{name}'),
                    timeout_sec=_REMOVE_TIMEOUT_SEC,
                )
            except exceptions.StorageCommandError as error:
                tries -= 1
                if 'watchers' not in str(error) or not tries:
                    raise
                self._sleep(_POLL_SEC)

    def has_image(self, name: str) -> bool:
        """Return whether the image exists; False if its pool does not exist."""
        try:
            return name in json.loads(self._rbd('ls', '--format', 'json', self.pool))
        except exceptions.StorageCommandError as error:
            if _NO_POOL.search(str(error)):
                return False
            raise

    def set_option(self, name: str, option: str, value: object) -> None:
        """Set a librbd option of one image, such as ``rbd_qos_iops_limit``."""
        self._rbd('config', 'image', 'set', f'{self.pool}/{name}', option, value)

    def image_facts(self, name: str) -> dict[str, Any]:
        """Return the facts that ``rbd info`` reports about an image."""
        return json.loads(self._rbd('info', '--format', 'json', f'{self.pool}/{name}'))

    def image_options(self, name: str) -> dict[str, str]:
        """Return the librbd options that are set for this image or for its pool."""
        rows = json.loads(
            self._rbd('config', 'image', 'list', '--format', 'json', f'{self.pool}/{name}')
        )
        return {row['name']: row['value'] for row in rows if row['source'] in ('image', 'pool')}

    def _rbd(self, *words: object, **options: Any) -> str:
        return self._run('rbd', '--conf', self.conf, '--id', self.user, *words, **options)
