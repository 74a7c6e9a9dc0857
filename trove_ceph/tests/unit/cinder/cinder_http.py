# SPDX-License-Identifier: Apache-2.0
"""The HTTP requests between Cinder's clients and a fake of its API."""

import io
import itertools
import json

import requests
from keystoneauth1 import plugin


class Refused(Exception):
    """An HTTP response with an error status."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Caller:
    """The project and role of a request's token."""

    def __init__(self, project, is_admin, version):
        self.project = project
        self.version = version
        self.is_admin = is_admin

    def require_admin(self):
        if not self.is_admin:
            raise Refused(403, 'Policy does not allow this request to be performed.')

    def sees(self, item, query):
        everything = self.is_admin and query.get('all_tenants') == '1'
        return everything or item['project'] == self.project


class Token(plugin.BaseAuthPlugin):
    """A token as Keystone would issue it."""

    def __init__(self, project, role):
        super().__init__()
        self._project, self._role = project, role

    def get_token(self, session, **kwargs):
        return f'{self._project}/{self._role}'

    def get_endpoint(self, session, **kwargs):
        return f'http://cinder/v3/{self._project}'

    def get_project_id(self, session, **kwargs):
        return self._project


class Adapter(requests.adapters.BaseAdapter):
    """The network to Cinder, which can be interrupted before or after one request is served.

    :param number: the request to interrupt, from 0
    :param after: whether the interruption follows the request
    :param strike: raises the interruption
    """

    def __init__(self, cinder, number=None, after=False, strike=None):
        super().__init__()
        self._cinder = cinder
        self._numbers = itertools.count()
        self._number, self._after, self._strike = number, after, strike
        self.struck = False

    def send(self, request, **kwargs):
        struck = next(self._numbers) == self._number
        self.struck = self.struck or struck
        if struck and not self._after:
            self._strike()
        response = self._serve(request)
        if struck and self._after:
            self._strike()
        return response

    def _serve(self, request):
        status, content = 200, {}
        try:
            body = json.loads(request.body) if request.body else None
            token = request.headers['X-Auth-Token']
            header = request.headers.get('OpenStack-API-Version', 'volume 3.0')
            version = tuple(map(int, header.removeprefix('volume ').split('.')))
            content = self._cinder.answer(request.method, request.url, body, token, version) or {}
        except Refused as error:
            status, content = error.status, {'error': {'message': str(error)}}
        response = requests.Response()
        response.status_code = status
        response.headers['Content-Type'] = 'application/json'
        response.url, response.request = request.url, request
        response.raw = io.BytesIO(json.dumps(content).encode())
        return response

    def close(self):
        """Do nothing: there is no connection."""
