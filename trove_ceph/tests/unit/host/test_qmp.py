# SPDX-License-Identifier: Apache-2.0
import json
import socket
import threading

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.host import qmp

GREETING = {'QMP': {'version': {}, 'capabilities': []}}


class QmpClientTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        ours, self.theirs = socket.socketpair()
        self.addCleanup(ours.close)
        self.addCleanup(self.theirs.close)
        self.client = qmp.QmpClient(ours)
        self.asked = []

    def answer(self, *answers):
        """Play QEMU: greet, then answer each command; a list is sent as several messages."""

        def play():
            with self.theirs.makefile('rwb') as line:

                def send(document):
                    line.write(json.dumps(document).encode() + b'\r\n')
                    line.flush()

                send(GREETING)
                for one in ({'return': {}}, *answers):
                    request = json.loads(line.readline())
                    self.asked.append((request['execute'], request['arguments']))
                    for message in one if isinstance(one, list) else [one]:
                        is_answer = 'event' not in message
                        send({'id': request['id'], **message} if is_answer else message)

        thread = threading.Thread(target=play)
        thread.start()
        self.addCleanup(thread.join)

    def execute(self, command='query-status', **arguments):
        return self.client.execute(command, 10, **arguments)

    def test_commands(self):
        self.answer({'return': {'status': 'running'}}, {'return': []})
        self.assertEqual({'status': 'running'}, self.execute())
        self.assertEqual([], self.execute('query-named-block-nodes', flat=True))
        self.assertEqual(
            [
                ('qmp_capabilities', {}),
                ('query-status', {}),
                ('query-named-block-nodes', {'flat': True}),
            ],
            self.asked,
        )

    def test_events_between_answers(self):
        event = {'event': 'BLOCK_IO_ERROR', 'data': {}, 'timestamp': {}}
        self.answer([event, {'return': 1}])
        self.assertEqual(1, self.execute())
        self.assertEqual(['BLOCK_IO_ERROR'], list(self.client.events))

    def test_an_answer_to_an_earlier_command(self):
        self.answer([{'return': 'late', 'id': 0}, {'return': 'in time'}])
        self.assertEqual('in time', self.execute())

    def assert_fault(self, text):
        error = self.assertRaises(exceptions.InspectionFaultError, self.execute)
        self.assertIn(text, str(error))

    def test_a_command_that_fails(self):
        self.answer({'error': {'class': 'GenericError', 'desc': 'no such node'}})
        self.assert_fault('no such node')

    def test_no_qemu(self):
        self.theirs.close()
        self.assert_fault('QEMU')

    def test_no_answer_in_time(self):
        now = iter(range(0, 1000, 20))
        self.client = qmp.QmpClient(self.client._connection, clock=lambda: next(now))
        self.assert_fault('no answer in time')

    def test_events_without_end(self):
        """QEMU can be compromised; it must not keep the host waiting."""
        self.theirs.sendall(json.dumps(GREETING).encode() + b'\n' + b'{"event": "NOISE"}\n' * 5000)
        now = iter(range(1000))
        self.client = qmp.QmpClient(self.client._connection, clock=lambda: next(now))
        self.assert_fault('no answer in time')

    def test_what_is_no_message(self):
        self.theirs.sendall(b'{"QMP": \n')
        self.assert_fault('not JSON')

    def test_an_endless_message(self):
        thread = threading.Thread(target=self._send_much)
        thread.start()
        self.addCleanup(thread.join)
        self.assert_fault('too long')
        self.client._connection.close()

    def _send_much(self):
        try:
            self.theirs.sendall(b'x' * 4 * 1024**2)
        except OSError:
            # The other side has had enough.
            pass
