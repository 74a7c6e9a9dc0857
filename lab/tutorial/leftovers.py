# SPDX-License-Identifier: Apache-2.0
"""What the commands of a page have created in the tenant's project."""

import dataclasses
import time
from collections.abc import Iterator
from typing import NamedTuple

from main_job.client import Client
from main_job.errors import JobError

POLL_SEC = 4
TIMEOUT_SEC = 600


class LeftoversError(Exception):
    """Resources of the page exist when none may; the text names them."""


class Resource(NamedTuple):
    """An ``instance`` or a ``backup``."""

    kind: str
    identity: str
    name: str

    def __str__(self) -> str:
        return f'{self.kind} {self.name} ({self.identity})'


@dataclasses.dataclass(frozen=True)
class Leftovers:
    """The resources of a page, by the names that it gives them.

    :param instances: names of instances
    :param backups: how the names of backups begin: the names of policies are among these
    """

    client: Client
    instances: tuple[str, ...]
    backups: tuple[str, ...]

    def require_none(self) -> None:
        """Return if nothing of the page exists.

        :raises LeftoversError: something does
        """
        if found := self._found():
            raise LeftoversError(f'exists already, or still: {_named(found)}')

    def remove(self) -> None:
        """Delete what exists, and wait until it is gone.

        A deletion that is refused, such as that of the source of a replica, is requested again.

        :raises LeftoversError: something still exists after ten minutes
        """
        refusal = ''
        for found in self._waiting():
            for one in found:
                try:
                    self._request_deletion(one)
                except JobError as error:
                    refusal = str(error)
        if found := self._found():
            text = f'not deleted within {TIMEOUT_SEC} s: {_named(found)}'
            raise LeftoversError(f'{text}; the last refusal: {refusal or "none"}')

    def wait_until_gone(self) -> None:
        """Wait for the deletions that the page has requested itself.

        :raises LeftoversError: something still exists after ten minutes
        """
        for _ in self._waiting():
            pass
        if found := self._found():
            raise LeftoversError(f'the page leaves behind: {_named(found)}')

    def _waiting(self) -> Iterator[list[Resource]]:
        """Yield what exists, every few seconds, until nothing does or ten minutes have passed."""
        waited_sec = 0
        while (found := self._found()) and waited_sec < TIMEOUT_SEC:
            yield found
            time.sleep(POLL_SEC)
            waited_sec += POLL_SEC

    def _request_deletion(self, one: Resource) -> None:
        try:
            self.client.request_deletion(one.kind, one.identity)
        except JobError:
            if one.kind != 'instance':
                raise
            # One that is being built is deleted only so.
            self.client.request_deletion(one.kind, one.identity, '--force')

    def _found(self) -> list[Resource]:
        instances = [
            Resource('instance', one['ID'], one['Name'])
            for one in self.client.list_instances()
            if one['Name'] in self.instances
        ]
        backups = [
            Resource('backup', one['ID'], one['Name'])
            for one in self.client.list_backups()
            if one['Name'].startswith(self.backups)
        ]
        return backups + instances


def _named(found: list[Resource]) -> str:
    return ', '.join(map(str, found))
