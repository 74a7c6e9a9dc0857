# SPDX-License-Identifier: Apache-2.0
"""A guest that waits, with everything loaded, until the taskmanager makes an instance of it.

It answers signed messages (:mod:`waiting_messages`) and prepares what an agent needs later. After a
``load`` it also runs MySQL, without anything of a tenant (:mod:`hot_server`). When a ``bind`` has
replaced its files (:mod:`guest_identity`), it forgets its keys and leaves the bus; the same process
then starts as the agent of the instance, since a new one would import for a minute.
"""

import dataclasses
import functools
import importlib.metadata
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import docker
import oslo_messaging as messaging
from oslo_config import cfg
from oslo_log import log as logging
from oslo_utils import importutils
from trove.common.rpc import secure_serializer
from trove.guestagent import dbaas
from trove.guestagent.common import operating_system

from trove_ceph import exceptions, message_auth
from trove_ceph.guestagent import (
    guest_identity,
    hot_server,
    network_interface,
    preload,
    rehearsal,
    replacement_process,
)
from trove_ceph.guestagent import waiting_messages as messages

LOG = logging.getLogger(__name__)

#: Maximum difference of the clocks of guest and taskmanager.
_SKEW_SEC = 60
_PREPARE_RETRY_SEC = 5.0
# The rehearsal is one request to docker, and takes most of a minute on a busy machine.
_DOCKER_TIMEOUT_SEC = 300
_NOT_PREPARED = 'it is still preparing'


class Outcome:
    """What became of the wait: one binding, which succeeds or fails."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._is_begun = False
        self._ended = threading.Event()
        self._bound: messages.Binding | None = None

    def begin(self) -> None:
        """Begin to bind.

        :raises GuestNotBoundError: it was begun before
        """
        with self._mutex:
            if self._is_begun:
                raise exceptions.GuestNotBoundError('This guest has accepted a binding before')
            self._is_begun = True

    def end(self, bound: messages.Binding | None) -> None:
        """End the wait; None: the binding failed."""
        self._bound = bound
        self._ended.set()

    def is_begun(self) -> bool:
        """Return whether a binding was begun."""
        return self._is_begun

    def wait(self, timeout_sec: float | None) -> bool:
        """Wait until the wait has ended; return whether it has."""
        return self._ended.wait(timeout_sec)

    def bound(self) -> messages.Binding:
        """Return the binding that succeeded.

        :raises GuestNotBoundError: it failed
        """
        if self._bound is None:
            raise exceptions.GuestNotBoundError('The binding failed; this guest binds no more')
        return self._bound


class Endpoint:
    """The RPC methods of a waiting guest.

    :param find_obstacle: returns why the guest cannot bind now; None: it can
    :param replace_files: makes the files of this guest those of an instance
    :param hot: MySQL, if it was loaded
    """

    target = messaging.Target(version=messages.VERSION)

    def __init__(
        self,
        verifier: message_auth.Verifier,
        find_obstacle: Callable[[], str | None],
        replace_files: Callable[[messages.Binding], None],
        outcome: Outcome,
        hot: hot_server.HotServer,
    ):
        self._verifier = verifier
        self._hot = hot
        self._find_obstacle = find_obstacle
        self._replace_files = replace_files
        self._outcome = outcome

    @messaging.expose
    def ping(self, _context: Any, message: Any) -> dict[str, Any]:
        """Tell the address of this run of the agent, and whether it can bind."""
        return self._answer(messages.Verb.PING, message, self._ping)

    @messaging.expose
    def load(self, _context: Any, message: Any) -> dict[str, Any]:
        """Start MySQL on a volume, in the background."""
        return self._answer(messages.Verb.LOAD, message, self._load)

    @messaging.expose
    def bind(self, _context: Any, message: Any) -> dict[str, Any]:
        """Make this guest an instance; accepted once."""
        return self._answer(messages.Verb.BIND, message, self._bind)

    def _answer(
        self,
        verb: messages.Verb,
        message: Any,
        execute: Callable[[message_auth.Request], dict[str, Any]],
    ) -> dict[str, Any]:
        try:
            request = self._verifier.accept(message)
        except message_auth.RefusedError as refused:
            LOG.warning('Refused a request for %s: %s', verb, refused)
            return {'refused': str(refused.reason)}
        try:
            if request.verb != verb:
                raise exceptions.GuestNotBoundError(f'The message is not for {verb}')
            answer = execute(request)
        except exceptions.TroveCephError as error:
            LOG.error('%s failed: %s', verb, error)
            answer = {'error': str(error)}
        except Exception as error:
            LOG.exception('%s failed', verb)
            answer = {'error': f'{verb} failed: {type(error).__name__}'}
        finally:
            self._verifier.finish(request)
        return self._verifier.sign_reply(request, answer)

    def _ping(self, _request: message_auth.Request) -> dict[str, Any]:
        reason = self._obstacle()
        return {
            'address': dataclasses.asdict(self._verifier.address),
            'can_bind': reason is None,
            'reason': reason or '',
            'version': importlib.metadata.version('trove-ceph'),
            'load': str(self._hot.state),
        }

    def _obstacle(self) -> str | None:
        if self._outcome.is_begun():
            return 'it has accepted a binding before'
        return self._find_obstacle() or self._hot.find_obstacle()

    def _load(self, request: message_auth.Request) -> dict[str, Any]:
        _check_address(request)
        load = messages.parse_load(request.arguments)
        if self._outcome.is_begun():
            raise exceptions.GuestNotBoundError('This guest has accepted a binding before')
        self._hot.request(load)
        return {'loading': True}

    def _bind(self, request: message_auth.Request) -> dict[str, Any]:
        _check_address(request)
        binding = messages.parse_binding(request.arguments)
        self._hot.check(binding.volume_id)
        self._outcome.begin()
        bound = None
        try:
            self._replace_files(binding)
            bound = binding
        finally:
            self._outcome.end(bound)
        LOG.info('The files of this guest are those of instance %s', binding.instance_id)
        return {'bound': True}


def _check_address(request: message_auth.Request) -> None:
    if request.address is None:
        # A message without an address might be older than this run, which knows no nonces.
        raise exceptions.GuestNotBoundError('The request names no address of a ping')


class WaitingGuest:
    """The wait of one agent.

    :param conf: the configuration of the waiting guest
    :param process: replaces the files
    :param prepare: prepares what an agent needs later; any exception: it is to be repeated
    :param find_obstacle: returns why interfaces cannot be configured here; None: they can
    :param hot: starts MySQL on request
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        process: replacement_process.ReplacementProcess,
        prepare: Callable[[], None],
        find_obstacle: Callable[[], str | None],
        hot: hot_server.HotServer,
    ):
        self._hot = hot
        self._conf = conf
        self._process = process
        self._prepare = prepare
        self._find_network_obstacle = find_obstacle
        self._unprepared: str | None = _NOT_PREPARED
        self._outcome = Outcome()
        self._identity = guest_identity.find(conf)

    def wait(self) -> messages.Binding:
        """Answer until the guest is bound, and return what it became.

        :raises GuestNotBoundError: the binding failed
        :raises KeyFileError: the key of the guest is malformed
        """
        keys = messages.signing_keys(self._conf.guest_id, self._conf.trove_ceph.waiting_guest_key)
        verifier = message_auth.Verifier(keys, self._conf.guest_id, _SKEW_SEC)
        endpoint = Endpoint(
            verifier, self._find_obstacle, self._replace_files, self._outcome, self._hot
        )
        with _served(self._conf, endpoint):
            LOG.info('Guest %s waits for an instance', self._conf.guest_id)
            self._try_to_prepare()
            while not self._outcome.wait(_PREPARE_RETRY_SEC if self._unprepared else None):
                self._try_to_prepare()
        return self._outcome.bound()

    def _find_obstacle(self) -> str | None:
        if self._unprepared:
            return self._unprepared
        if not self._process.is_running():
            return 'the process that replaces its files has ended'
        return self._find_network_obstacle()

    def _replace_files(self, binding: messages.Binding) -> None:
        self._process.replace(guest_identity.plan(self._identity, binding))

    def _try_to_prepare(self) -> None:
        try:
            self._prepare()
        except Exception as error:
            self._unprepared = f'{_NOT_PREPARED}: {type(error).__name__}: {error}'
            LOG.warning('Cannot prepare: %s; will retry', self._unprepared)
        else:
            self._unprepared = None


class SerializerWithoutContext(secure_serializer.SecureSerializer):
    """Trove's serializer of guest agents, without the context of a request.

    Nothing authenticates a context, and Trove's own serializer calls the class that it names.
    """

    def deserialize_context(self, _context):
        """Return an empty context."""
        return {}


@contextmanager
def _served(conf: cfg.ConfigOpts, endpoint: Endpoint) -> Iterator[None]:
    """Serve an endpoint on Trove's bus; at the end, send the answers that are due, and leave."""
    transport = messaging.get_rpc_transport(conf, allowed_remote_exmods=[])
    serializer = SerializerWithoutContext(None, conf.instance_rpc_encr_key)
    server = messaging.get_rpc_server(
        transport,
        messaging.Target(topic=messages.topic(conf.guest_id), server=conf.guest_id),
        [endpoint],
        serializer=serializer,
        access_policy=messaging.ExplicitRPCAccessPolicy,
    )
    server.start()
    try:
        yield
    finally:
        server.stop()
        # Until the answers are sent.
        server.wait()
        transport.cleanup()


def prepare(conf: cfg.ConfigOpts) -> None:
    """Prepare what the agent and its server need, as far as it does not depend on the instance.

    Idempotent; raises anything.
    """
    datastore = conf[conf.datastore_manager]
    uid = datastore.database_service_uid or conf.database_service_uid
    gid = datastore.database_service_gid or uid
    operating_system.create_user(datastore.database_service_uname, user_id=uid, group_id=gid)
    # systemd starts docker at the first request.
    client = docker.from_env(timeout=_DOCKER_TIMEOUT_SEC)
    client.ping()
    image = f'{datastore.docker_image}:{conf.datastore_version}'
    rehearsal.run(client, image, uid, gid)


def wait(conf: cfg.ConfigOpts) -> messages.Binding:
    """Wait until this guest is bound; then the configuration is to be read again.

    :raises TroveCephError: it is not bound, and never will be
    """
    # Before there are keys: what exists now is kept for the life of the process.
    preload.run()
    make_manager = importutils.import_class(dbaas.datastore_registry()[conf.datastore_manager])
    process = replacement_process.ReplacementProcess()
    try:
        prepared = functools.partial(prepare, conf)
        hot = hot_server.HotServer(make_manager)
        return WaitingGuest(conf, process, prepared, network_interface.find_obstacle, hot).wait()
    finally:
        process.close()
