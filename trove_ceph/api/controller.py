# SPDX-License-Identifier: Apache-2.0
"""What all resources do with a request: whose it is, what it asks for, and how it fails."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import webob.exc
from trove.common import exception as trove_exceptions
from trove.common import policy, wsgi

from trove_ceph import exceptions, schema_problems

_STATUS: list[tuple[type[exceptions.TroveCephError], type[webob.exc.HTTPError]]] = [
    (exceptions.RecordNotFoundError, webob.exc.HTTPNotFound),
    (exceptions.RecordExistsError, webob.exc.HTTPConflict),
    (exceptions.NotFoundError, webob.exc.HTTPNotFound),
    (exceptions.AlreadyExistsError, webob.exc.HTTPConflict),
    (exceptions.BusyError, webob.exc.HTTPConflict),
    (exceptions.InvalidRequestError, webob.exc.HTTPBadRequest),
    (exceptions.TroveCephError, webob.exc.HTTPServiceUnavailable),
]


class Controller(wsgi.Controller):
    """A resource whose errors say what to do about them."""

    @staticmethod
    def context_of(request: Any) -> Any:
        return request.environ[wsgi.CONTEXT_KEY]

    @staticmethod
    def content_of(body: Any, key: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what a request has below its only key.

        :raises BadRequest: it is not as the schema has it; the message says where, and what to do
        """
        outer = {
            'type': 'object',
            'description': f'an object with the key {key}',
            'required': [key],
            'additionalProperties': False,
            'properties': {key: schema},
        }
        if found := schema_problems.problems({} if body is None else body, outer):
            raise trove_exceptions.BadRequest(
                message='; '.join(
                    f'{schema_problems.path_text(path) or "the body"}: {what}'
                    for path, what in found
                )
            )
        return body[key]


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Give our errors the status that tells clients whether to ask again."""
    try:
        yield
    except exceptions.TroveCephError as error:
        status = next(status for kind, status in _STATUS if isinstance(error, kind))
        raise status(str(error)) from error


def authorize(context: Any, rule: str, what: str, project_id: str | None) -> None:
    """Let nobody but those whom a rule allows it do something about a thing.

    Of what is another project's it is not even told that it is there.

    :param what: the thing, with its id
    :raises HTTPNotFound: it is another project's
    :raises PolicyNotAuthorized: the rule does not allow it
    """
    if project_id != context.project_id and not context.is_admin:
        raise absent(what)
    policy.authorize_on_target(context, rule, {'tenant': project_id or 'none'})


def is_allowed(context: Any, rule: str) -> bool:
    """Tell whether a rule allows something that belongs to nobody."""
    try:
        policy.authorize_on_tenant(context, rule)
    except trove_exceptions.PolicyNotAuthorized:
        return False
    return True


def absent(what: str) -> webob.exc.HTTPNotFound:
    """Return the answer for what is not there, or not for whoever asks."""
    return webob.exc.HTTPNotFound(f'{what} cannot be found')
