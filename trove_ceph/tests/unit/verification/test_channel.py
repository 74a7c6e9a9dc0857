# SPDX-License-Identifier: Apache-2.0
import os
import threading

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.verification import channel


class ChannelTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.read_end, self.write_end = os.pipe()
        self.addCleanup(os.close, self.read_end)
        self.now = 0.0
        self.watched = 0
        self.line = channel.Channel(self.read_end, self.write_end, self.watch, lambda: self.now)

    def watch(self):
        self.watched += 1
        self.now += 10

    def write(self, content):
        """Write from a thread, since a long line does not fit into a pipe."""

        def run():
            os.write(self.write_end, content)
            os.close(self.write_end)

        thread = threading.Thread(target=run)
        thread.start()
        self.addCleanup(thread.join)

    def test_documents_arrive_one_by_one(self):
        self.line.send({'call': 'check', 'with': {'number': 3}})
        self.line.send(['ü'])
        os.close(self.write_end)
        self.assertEqual({'call': 'check', 'with': {'number': 3}}, self.line.receive())
        self.assertEqual(['ü'], self.line.receive())
        self.assertRaises(EOFError, self.line.receive)

    def test_waiting_for_a_document_times_out(self):
        self.addCleanup(os.close, self.write_end)
        self.assertRaises(TimeoutError, self.line.receive, 15)
        self.assertEqual(2, self.watched)

    def test_an_exception_of_the_watcher_ends_the_wait(self):
        self.addCleanup(os.close, self.write_end)

        def refuse():
            raise exceptions.CanceledError('enough')

        line = channel.Channel(self.read_end, self.write_end, refuse)
        self.assertRaises(exceptions.CanceledError, line.receive)

    def test_refuses_a_line_without_an_end(self):
        line = b'"' + b'x' * (channel.MAX_LINE_BYTES + 200_000)
        reader = threading.Thread(target=self.write, args=[line])
        reader.start()
        self.addCleanup(reader.join)
        error = self.assertRaises(exceptions.ServerFailedError, self.line.receive)
        self.assertIn('a line of more than', str(error))
        # Drain the pipe so that the writer can finish.
        while os.read(self.read_end, 1 << 20):
            pass

    def test_refuses_a_line_that_is_not_json(self):
        self.write(b'mysqld: ready\n' + b'[' * 100_000 + b'\n' + b'1' * 5000 + b'\n')
        for _ in range(3):
            error = self.assertRaises(exceptions.ServerFailedError, self.line.receive)
            self.assertIn('not JSON', str(error))
