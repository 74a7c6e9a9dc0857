# SPDX-License-Identifier: Apache-2.0
"""Trove's RPC servers on a bus in memory, and messages that arrive at them."""

from unittest import mock

import fixtures
import oslo_messaging as messaging
from oslo_config import cfg
from oslo_messaging import conffixture
from trove import rpc
from trove.common import context, notification

KEY = 'a key that only Trove has'
#: What an attacker may choose: any class that Python can import.
CALLED = 'trove.common.utils.execute'


class Bus(fixtures.Fixture):
    """A bus, on which :func:`trove.rpc.get_server` makes servers; undoes what replaces it."""

    def _setUp(self):
        conf = cfg.ConfigOpts()
        self.useFixture(conffixture.ConfFixture(conf))
        conf([])
        transport = messaging.get_rpc_transport(conf, 'fake://')
        self.useFixture(fixtures.MonkeyPatch('trove.rpc.TRANSPORT', transport))
        self.useFixture(fixtures.MonkeyPatch('trove.rpc.get_server', rpc.get_server))
        self.called = self.useFixture(fixtures.MockPatch(CALLED)).mock


def receive(server, serialized_context, method, **arguments):
    """Let a server receive a request, and return its answer before it is serialized."""
    message = {'method': method, 'args': arguments, 'version': '1.0'}
    incoming = mock.Mock(ctxt=serialized_context, message=message, client_timeout=0)
    return server.dispatcher.dispatch(incoming)


def request_context(path=None, **values):
    """Return the context of a request, with a notification; a path names another class."""
    result = context.TroveContext(user_id='user', project_id='project')
    made = notification.DBaaSInstanceRestart(
        result, request_id='request', server_type='taskmanager', **values
    )
    if path:
        # Trove serializes whatever its module and its name are.
        module, _, name = path.rpartition('.')
        made = type(name, (notification.DBaaSInstanceRestart,), {'__module__': module})(
            result, request_id='request', server_type='taskmanager'
        )
    result.notification = made
    return result
