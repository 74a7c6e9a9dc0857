# SPDX-License-Identifier: Apache-2.0
"""The network in front of a server on this host, which a test cuts."""

import contextlib
import socket
import threading

_CHUNK_BYTES = 65536


class Link:
    """Forward connections to a port of this host until :meth:`close`.

    :ivar port: where the connections come in
    """

    def __init__(self, target_port):
        self._target_port = target_port
        self._listener = socket.create_server(('127.0.0.1', 0))
        self.port = self._listener.getsockname()[1]
        self._mutex = threading.Lock()
        self._flows = threading.Event()
        self._flows.set()
        self._is_refused = False
        self._open = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def refuse(self):
        """End all connections, and refuse new ones, as the host does when the server has died."""
        with self._mutex:
            self._is_refused = True
            for one in self._open:
                _end(one)

    def drop(self):
        """Forward nothing, and close nothing, as a network does that is cut."""
        self._flows.clear()

    def mend(self):
        """Forward all that comes, also what has waited."""
        with self._mutex:
            self._is_refused = False
        self._flows.set()

    def close(self):
        """Forward nothing any more."""
        _end(self._listener)
        self._listener.close()
        self.refuse()
        self._flows.set()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client):
        with client, contextlib.suppress(OSError):
            self._flows.wait()
            with socket.create_connection(('127.0.0.1', self._target_port)) as server:
                with self._mutex:
                    if self._is_refused:
                        return
                    self._open |= {client, server}
                try:
                    back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
                    back.start()
                    self._pump(client, server)
                    back.join()
                finally:
                    with self._mutex:
                        self._open -= {client, server}

    def _pump(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                self._flows.wait()
                target.sendall(data)
        _end(source)
        _end(target)


def _end(connection):
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
