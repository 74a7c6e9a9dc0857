# SPDX-License-Identifier: Apache-2.0
"""The parts of a request that all resources share: context, validation, policy and errors."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import oslo_db.exception
import webob.exc
from oslo_log import log as logging
from oslo_utils import strutils
from trove.common import exception as trove_exceptions
from trove.common import policy, wsgi
from trove.instance import models as instance_models

from trove_ceph import exceptions, schema_problems
from trove_ceph.trove_adapter import trove_db

LOG = logging.getLogger(__name__)

_STATUS: list[tuple[type[exceptions.TroveCephError], type[webob.exc.HTTPError]]] = [
    (exceptions.RecordNotFoundError, webob.exc.HTTPNotFound),
    (exceptions.RecordExistsError, webob.exc.HTTPConflict),
    (exceptions.NotFoundError, webob.exc.HTTPNotFound),
    (exceptions.AlreadyExistsError, webob.exc.HTTPConflict),
    (exceptions.BusyError, webob.exc.HTTPConflict),
    (exceptions.ReplacementRefusedError, webob.exc.HTTPConflict),
    (exceptions.ReprovisioningRefusedError, webob.exc.HTTPConflict),
    (exceptions.InvalidRequestError, webob.exc.HTTPBadRequest),
]
#: The actions of requests that have no body.
_WITHOUT_BODY = ('index', 'show', 'delete')
_UNAVAILABLE = (
    'the database, or another service of the cloud, does not answer; repeat the request later, or '
    'tell your operator'
)


class Controller(wsgi.Controller):
    """The base of the resources, with validation of the request's body."""

    def validate_request(self, action: str, action_args: dict[str, Any]) -> None:
        """Ignore a body that an action does not read, such as one that a client sends with GET."""
        if action in _WITHOUT_BODY:
            action_args.pop('body', None)

    @staticmethod
    def check_patch(request: Any) -> None:
        """Refuse to change an object by a GET, which the router maps to ``edit`` as it does PATCH.

        :raises HTTPNotFound: the request is no PATCH
        """
        if request.method != 'PATCH':
            raise webob.exc.HTTPNotFound()

    @staticmethod
    def context_of(request: Any) -> Any:
        return request.environ[wsgi.CONTEXT_KEY]

    @staticmethod
    def content_of(body: Any, key: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the value of the only key of a request's body.

        :raises BadRequest: it violates the schema; the message says where, and what is expected
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
                    f'{schema_problems.path_text(path) or "the body"}: {problem}'
                    for path, problem in found
                )
            )
        return body[key]


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise errors of this package and of the database as HTTP errors, with the status that fits.

    The log has the reason of one that is not for tenants, such as the host of the database.
    """
    try:
        yield
    except (exceptions.TroveCephError, oslo_db.exception.DBError) as error:
        for kind, status in _STATUS:
            if isinstance(error, kind):
                raise status(str(error)) from error
        LOG.error('A request failed: %s', error)
        raise webob.exc.HTTPServiceUnavailable(_UNAVAILABLE) from error


def authorize(context: Any, rule: str, subject: str, project_id: str | None) -> None:
    """Check that a rule allows the caller an operation on an object.

    The existence of another project's object is not revealed.

    :param subject: the object, with its id
    :raises HTTPNotFound: it belongs to another project
    :raises PolicyNotAuthorized: the rule does not allow it
    """
    if project_id != context.project_id and not context.is_admin:
        raise absent(subject)
    policy.authorize_on_target(context, rule, {'tenant': project_id or 'none'})


def authorize_list(request: Any, context: Any, key: str, parameter: str = '') -> str | None:
    """Check that the caller may list what a request asks for.

    Who may list the objects of all projects gets those of an instance without asking for all.

    :param key: of the rules ``KEY:index`` and ``KEY:index:all_projects``
    :param parameter: of the query, which names the instance whose objects are listed; empty: none
        does
    :returns: the project whose objects are listed; None: those of all projects
    :raises PolicyNotAuthorized: a rule does not allow it
    """
    policy.authorize_on_tenant(context, f'{key}:index')
    rule = f'{key}:index:all_projects'
    if strutils.bool_from_string(request.GET.get('all_projects')):
        policy.authorize_on_tenant(context, rule)
        return None
    if parameter and request.GET.get(parameter) and is_allowed(context, rule):
        return None
    return context.project_id


def authorize_policy(
    context: Any, rule: str, operate: str, subject: str, project_id: str | None
) -> None:
    """Check that the caller may do something with a policy, which may be an operator's.

    The existence of a policy that the caller must not see is not revealed.

    :param rule: for a policy that belongs to a project
    :param operate: the rule for a policy that belongs to no project
    :param subject: the policy, with its id
    :raises HTTPNotFound: it belongs to another project, or to an operator
    :raises PolicyNotAuthorized: the rule does not allow it
    """
    if project_id is not None:
        authorize(context, rule, subject, project_id)
    elif not is_allowed(context, operate):
        raise absent(subject)


def find_instance(context: Any, rule: str, instance_id: str) -> Any:
    """Return Trove's row of an instance, if a rule allows the caller an operation on it.

    :raises HTTPNotFound: it does not exist, or belongs to another project
    :raises HTTPServiceUnavailable: the database does not answer
    :raises PolicyNotAuthorized: the rule does not allow it
    """
    subject = f'instance {instance_id}'
    with translated():
        found = list(instance_models.DBInstance.find_all(id=instance_id, deleted=False))
    row = next(iter(found), None)
    if row is None:
        raise absent(subject)
    authorize(context, rule, subject, row.tenant_id)
    return row


def check_guest_agent(row: Any, consequence: str) -> None:
    """Refuse what has no effect on an instance of another guest agent.

    :param row: Trove's row of the instance
    :param consequence: what has no effect
    :raises BadRequest: the instance has another guest agent
    """
    if not version_of(row).has_our_guest_agent:
        raise trove_exceptions.BadRequest(
            message=f'instance {row.id}: its datastore version has another guest agent; '
            f'{consequence}'
        )


def version_of(row: Any) -> trove_db.Version:
    """Return the datastore version of an instance.

    :param row: Trove's row of the instance
    :raises HTTPServiceUnavailable: the database does not answer
    """
    with translated():
        return trove_db.version_of(row.datastore_version_id)


def is_allowed(context: Any, rule: str) -> bool:
    """Return whether a rule allows the caller an operation on an object without a project."""
    try:
        policy.authorize_on_tenant(context, rule)
    except trove_exceptions.PolicyNotAuthorized:
        return False
    return True


def absent(subject: str) -> webob.exc.HTTPNotFound:
    """Return the error for an object that does not exist, or that the caller must not see."""
    return webob.exc.HTTPNotFound(f'{subject} cannot be found')
