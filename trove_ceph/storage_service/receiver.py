# SPDX-License-Identifier: Apache-2.0
"""The RPC endpoint of the service: one method, which accepts signed requests for all verbs."""

import inspect
from collections.abc import Mapping
from typing import Any

import oslo_messaging as messaging
from oslo_log import log as logging

from trove_ceph import exceptions, message_auth
from trove_ceph.storage_service import endpoint, permissions, serializer

LOG = logging.getLogger(__name__)


class Receiver:
    """Executes requests with a valid signature, if the permission of their verb allows them.

    Errors are in the signed reply, too. A request that is refused because of its signature, its
    times or its address gets an unsigned reply with only the reason; the details are in the log.

    :param verbs: the endpoint
    """

    target = messaging.Target(version=endpoint.VERSION)

    def __init__(
        self,
        verbs: endpoint.Endpoint,
        evidence: permissions.Evidence,
        verifier: message_auth.Verifier,
    ):
        self._endpoint = verbs
        self._evidence = evidence
        self._verifier = verifier
        self._permissions = endpoint.permissions_of(type(verbs))

    @messaging.expose
    def request(self, _context: Mapping[str, Any], message: Any) -> dict[str, Any]:
        """Answer one request."""
        try:
            request = self._verifier.accept(message)
        except message_auth.RefusedError as refused:
            LOG.warning('Refused a request: %s', refused)
            return {'refused': str(refused.reason)}
        try:
            return self._verifier.sign_reply(request, self._answer(request))
        except message_auth.RefusedError as refused:
            LOG.warning('%s: cannot sign the reply: %s', request.verb, refused)
            return {'refused': str(refused.reason)}
        finally:
            self._verifier.finish(request)

    def _answer(self, request: message_auth.Request) -> dict[str, Any]:
        try:
            permission = self._permissions.get(request.verb)
            if permission is None:
                raise exceptions.InvalidRequestError(f'{request.verb}: unknown verb')
            if permission.changes and request.address is None:
                address = self._verifier.address
                return {'address': {'server': address.server, 'run_id': address.run_id}}
            return {'result': self._execute(permission, request)}
        except exceptions.TroveCephError as error:
            return {'error': type(error).__name__, 'message': str(error)}
        except Exception as error:
            LOG.exception('%s: unexpected error', request.verb)
            message = f'{request.verb} failed: {type(error).__name__}: {error}'
            return {'error': exceptions.StorageError.__name__, 'message': message}

    def _execute(self, permission: permissions.Permission, request: message_auth.Request) -> Any:
        method = getattr(self._endpoint, request.verb)
        arguments = {name: serializer.decode(value) for name, value in request.arguments.items()}
        try:
            # The permissions use the arguments by name.
            inspect.signature(method).bind(**arguments)
        except TypeError as error:
            raise exceptions.InvalidRequestError(f'{request.verb}: {error}') from error
        try:
            self._check(permission, request.verb, arguments)
            return serializer.encode(method({}, **arguments))
        except messaging.ExpectedException as expected:
            raise expected.exc_info[1] from None

    def _check(
        self, permission: permissions.Permission, verb: str, arguments: Mapping[str, Any]
    ) -> None:
        try:
            permission.check(self._evidence, arguments)
        except exceptions.NotPermittedError as error:
            LOG.warning('%s: %s', verb, error)
            raise
        except AttributeError as error:
            raise exceptions.InvalidRequestError(
                f'{verb}: an argument is of the wrong type'
            ) from error
