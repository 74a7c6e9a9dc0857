# SPDX-License-Identifier: Apache-2.0
"""Keystone and Cinder as an HTTP server for clients of keystoneauth."""

import http.server
import json
import socketserver
import threading

import fixtures

from trove_ceph.tests.unit.tiers import fake_cloud

_CINDER = '/volume/v3/a-project'
_TOKEN = 'a-token'


class CloudServer(fixtures.Fixture):
    """Listen on a free port; ``cinder`` answers requests with a token."""

    def _setUp(self):
        # An HTTPServer would look up its own name, which may be slow.
        server = socketserver.ThreadingTCPServer(('127.0.0.1', 0), _handler(self))
        self.url = f'http://127.0.0.1:{server.server_address[1]}'
        self.cinder = fake_cloud.FakeCinder(page=2, url=f'{self.url}{_CINDER}')
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)

    def token(self):
        endpoint = {'interface': 'public', 'url': f'{self.url}{_CINDER}', 'region': 'east'}
        catalog = [{'type': 'volumev3', 'name': 'cinder', 'endpoints': [endpoint]}]
        return {
            'methods': ['password'],
            'expires_at': '2100-01-01T00:00:00.000000Z',
            'issued_at': '2020-01-01T00:00:00.000000Z',
            'user': {'id': 'u', 'name': 'u', 'domain': {'id': 'default', 'name': 'Default'}},
            'project': {'id': 'p', 'name': 'p', 'domain': {'id': 'default', 'name': 'Default'}},
            'roles': [{'id': 'r', 'name': 'admin'}],
            'catalog': catalog,
        }


def _handler(cloud):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if not self.path.startswith(_CINDER):
                version = {'id': 'v3.14', 'status': 'stable'}
                version['links'] = [{'rel': 'self', 'href': f'{cloud.url}/v3'}]
                self._answer(200, {'version': version})
            elif self.headers.get('X-Auth-Token') != _TOKEN:
                self._answer(401, {})
            else:
                found = cloud.cinder.get(self.path.removeprefix(_CINDER))
                self._answer(found.status_code, found.json())

        def do_POST(self):
            self.rfile.read(int(self.headers['Content-Length']))
            self._answer(201, {'token': cloud.token()}, {'X-Subject-Token': _TOKEN})

        def _answer(self, status, body, headers=()):
            text = json.dumps(body).encode()
            self.send_response(status)
            for name, value in dict(headers).items():
                self.send_header(name, value)
            self.send_header('Content-Type', 'application/json')
            self.send_header('Content-Length', str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *arguments):
            pass

    return Handler
