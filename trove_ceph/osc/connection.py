# SPDX-License-Identifier: Apache-2.0
"""Requests to Trove's API, on top of python-troveclient."""

import time
import urllib.parse
from collections.abc import Callable, Collection, Mapping
from typing import Any

import keystoneauth1.exceptions
from osc_lib import exceptions
from oslo_utils import uuidutils
from troveclient import exceptions as trove_exceptions

#: Trove's API, or Keystone, does not answer at present.
_UNANSWERED = (
    trove_exceptions.BadGateway,
    trove_exceptions.ServiceUnavailable,
    trove_exceptions.GatewayTimeout,
    keystoneauth1.exceptions.BadGateway,
    keystoneauth1.exceptions.ServiceUnavailable,
    keystoneauth1.exceptions.GatewayTimeout,
    keystoneauth1.exceptions.ConnectionError,
    keystoneauth1.exceptions.RetriableConnectionFailure,
)


class Connection:
    """Requests to Trove's API, with bodies as plain dictionaries.

    :param database: python-troveclient's client
    """

    def __init__(self, database: Any):
        self._database = database
        self._http = database.client

    def instance_id(self, name_or_id: str) -> str:
        """Return the id of an instance.

        :raises CommandError: none has this name, or several have it
        """
        return _id_of(self._database.instances, name_or_id, 'instance')

    def backup_id(self, name_or_id: str) -> str:
        """Return the id of a backup; the errors are as for instances."""
        return _id_of(self._database.backups, name_or_id, 'backup')

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Return what is at a path; parameters that are None or False are left out."""
        parameters = {name: value for name, value in query.items() if value not in (None, False)}
        suffix = f'?{urllib.parse.urlencode(parameters)}' if parameters else ''
        _response, body = self._http.get(path + suffix)
        return body

    def find(self, path: str) -> dict[str, Any] | None:
        """Return what is at a path; None: there is nothing."""
        try:
            return self.get(path)
        except trove_exceptions.NotFound:
            return None

    def get_pages(
        self, key: str, limit: int | None = None, path: str | None = None, **query: Any
    ) -> list[dict[str, Any]]:
        """Return the resources at the path of their name, from all pages up to the limit.

        :param key: the name of the resources in the body
        :param path: of the resources; by default their name
        """
        found: list[dict[str, Any]] = []
        marker = None
        while limit is None or len(found) < limit:
            rest = None if limit is None else limit - len(found)
            body = self.get(path or f'/{key}', **query, limit=rest, marker=marker)
            found += body[key]
            if not body.get('links'):
                break
            marker = found[-1]['id']
        return found

    def post(self, path: str, content: Any = None) -> dict[str, Any]:
        """Post a body, an empty one by default, and return the answer."""
        _response, body = self._http.post(path, body={} if content is None else content)
        return body

    def put(self, path: str, content: Any) -> dict[str, Any]:
        """Replace what is at a path, and return the answer."""
        _response, body = self._http.put(path, body=content)
        return body

    def patch(self, path: str, content: Any) -> dict[str, Any]:
        """Patch what is at a path, and return the answer."""
        _response, body = self._http.patch(path, body=content)
        return body

    def delete(self, path: str) -> None:
        """Delete what is at a path."""
        self._http.delete(path)


def wait(
    show: Callable[[], dict[str, Any]],
    is_done: Callable[[Mapping[str, Any]], bool],
    failure: Callable[[Mapping[str, Any], str], Exception],
    timeout_sec: float,
    poll_sec: float = 5,
) -> dict[str, Any]:
    """Show a resource every few seconds until it is done; return it then.

    The cloud goes on while its API does not answer, so a question without an answer is repeated.

    :param is_done: raises an error if it will never be done
    :param failure: returns the error for a resource and its problem
    """
    deadline = time.monotonic() + timeout_sec
    while True:
        try:
            shown = show()
        except _UNANSWERED:
            if time.monotonic() >= deadline:
                raise
        else:
            if is_done(shown):
                return shown
            if time.monotonic() >= deadline:
                # A backup that has not begun has no state of ours.
                state = shown['state'] or shown.get('status')
                raise failure(shown, f'is still {state} after {timeout_sec:g} s')
        time.sleep(poll_sec)


def only_id(ids: Collection[str], name: str, kind: str, kinds: str) -> str:
    """Return the id of the only resource that has a name.

    :param ids: of all that have it
    :param kind: what the resource is, in the singular; ``kinds``: in the plural
    :raises CommandError: there is none, or several
    """
    if not ids:
        raise exceptions.CommandError(f'no {kind} is named {name}')
    if len(ids) > 1:
        raise exceptions.CommandError(
            f'{len(ids)} {kinds} are named {name}; use an id: {", ".join(ids)}'
        )
    return next(iter(ids))


def _id_of(manager: Any, name_or_id: str, kind: str) -> str:
    """Return an id from all pages of one of Trove's own lists.

    :param manager: the resources of python-troveclient
    """
    if uuidutils.is_uuid_like(name_or_id):
        return name_or_id
    found: dict[str, None] = {}
    marker = None
    while True:
        page = manager.list(marker=marker)
        found |= {one.id: None for one in page if one.name == name_or_id}
        # Those of backups are no ids; a backup that changes meanwhile may be on two pages.
        marker = page.next
        if not marker:
            return only_id(found, name_or_id, kind, f'{kind}s')
