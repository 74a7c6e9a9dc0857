# SPDX-License-Identifier: Apache-2.0
"""Trove's RPC servers on a bus in memory, and messages that arrive at them."""

import fixtures
import oslo_messaging as messaging
from oslo_config import cfg
from oslo_messaging import conffixture
from trove.common import context, notification

from trove_ceph.trove_compat import strict_rpc

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
        # Another test of this process may have replaced them.
        for name in ('get_server', 'get_client'):
            stock = getattr(strict_rpc, f'_stock_{name}')
            self.useFixture(fixtures.MonkeyPatch(f'trove.rpc.{name}', stock))
        self.called = self.useFixture(fixtures.MockPatch(CALLED)).mock


class Incoming:
    """A request as a server receives it; ``answers`` are those that its sender gets."""

    msg_id = 'message'
    client_timeout = None

    def __init__(self, serialized_context, method, arguments, reply_q):
        self.ctxt = serialized_context
        self.message = {'method': method, 'args': arguments, 'version': '1.0'}
        self.reply_q = reply_q
        self.answers = []

    def acknowledge(self):
        pass

    def reply(self, reply=None, failure=None):
        self.answers.append(failure[1] if failure else reply)


def receive(server, serialized_context, method, arguments, reply_q='reply_of_a_service'):
    """Have a server process a request; return the answers that its sender gets."""
    incoming = Incoming(serialized_context, method, arguments, reply_q)
    server._process_incoming([incoming])
    return incoming.answers


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
