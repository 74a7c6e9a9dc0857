# SPDX-License-Identifier: Apache-2.0
"""Run the commands through python-troveclient and Trove's real API."""

import contextlib
import io
import json
import logging
import tomllib
import types
from importlib import metadata
from pathlib import Path

import fixtures
import requests
import webob
from cliff import app as cliff_app
from cliff import commandmanager
from keystoneauth1 import plugin, session
from oslotest import base
from troveclient import common
from troveclient.v1 import client as trove_client

import trove_ceph
from trove_ceph.osc import connection
from trove_ceph.tests.unit.api import world

GROUP = 'openstack.database.v1'
CHECKOUT = Path(trove_ceph.__file__).parent.parent


def entry_points():
    """Return the entry points that this checkout declares."""
    project = tomllib.loads((CHECKOUT / 'pyproject.toml').read_text())['project']
    return [
        metadata.EntryPoint(name, value, group)
        for group, points in project['entry-points'].items()
        for name, value in points.items()
    ]


class Token(plugin.BaseAuthPlugin):
    """A token of Keystone, and the endpoint of Trove."""

    def __init__(self, project):
        super().__init__()
        self._project = project

    def get_headers(self, _session, **_options):
        return {'X-Auth-Token': 'token'}

    def get_endpoint(self, _session, **_options):
        return f'http://trove/v1.0/{self._project}'


class Adapter(requests.adapters.BaseAdapter):
    """The network, with keystonemiddleware at the other end."""

    def __init__(self, api, role):
        super().__init__()
        self._api, self._role = api, role

    def send(self, request, **_options):
        forwarded = webob.Request.blank(request.path_url, method=request.method)
        forwarded.headers.update(request.headers)
        project = request.path_url.split('/')[2]
        forwarded.headers.update(world.headers(project, self._role))
        if request.body:
            body = request.body
            forwarded.body = body if isinstance(body, bytes) else body.encode()
        answer = self._api.serve(forwarded)
        response = requests.Response()
        response.status_code = answer.status_int
        response.headers.update(answer.headers)
        response.url, response.request = request.url, request
        response.raw = io.BytesIO(answer.body)
        return response

    def close(self):
        """Do nothing."""


class App(cliff_app.App):
    """The parts of python-openstackclient that its commands use."""

    def __init__(self, database):
        manager = commandmanager.CommandManager('none')
        for point in entry_points():
            if point.group == GROUP:
                manager.add_command(point.name.replace('_', ' '), point.load())
        super().__init__('', '1', manager, stdout=io.StringIO(), stderr=io.StringIO())
        self.client_manager = types.SimpleNamespace(database=database)

    def configure_logging(self):
        """Log nothing."""


class CommandTestCase(base.BaseTestCase):
    """A test of commands, with an instance of its project."""

    #: The words with which their names begin.
    prefix = 'database'

    def setUp(self):
        super().setUp()
        self.world = self.useFixture(world.World())
        self.instance = self.world.add_instance()

    def database(self, project=None, role='member'):
        """Return python-troveclient's client."""
        http = requests.Session()
        http.mount('http://', Adapter(self.world, role))
        keystone = session.Session(Token(project or self.world.project), session=http)
        return trove_client.Client(session=keystone)

    def run_command(self, line, **options):
        """Run a command, and return its status and output."""
        app = App(self.database(**options))
        try:
            with (
                fixtures.FakeLogger('', level=logging.ERROR) as logged,
                contextlib.redirect_stderr(io.StringIO()),
            ):
                status = app.run([*self.prefix.split(), *line.split()])
        except SystemExit as ended:
            # argparse exits if the command line is invalid.
            status = ended.code
        return status, app.stdout.getvalue() + logged.output

    def name(self, name, *instances):
        """Give instances a name in Trove's list, for which Trove would ask Nova.

        They are on the second page.
        """
        named = [types.SimpleNamespace(id=one.id, name=name) for one in instances]
        other = types.SimpleNamespace(id='another', name='another')
        pages = {None: common.Paginated([other], 'last'), 'last': common.Paginated(named)}
        self.useFixture(
            fixtures.MonkeyPatch(
                'troveclient.v1.instances.Instances.list', lambda _self, marker: pages[marker]
            )
        )

    def shown(self, line, **options):
        status, output = self.run_command(f'{line} -f json', **options)
        self.assertEqual(0, status, output)
        return json.loads(output)


class WaitingTestCase(CommandTestCase):
    """A test of commands that wait, and of what workers do meanwhile."""

    def setUp(self):
        super().setUp()
        self.now = 0
        #: What happens while the command sleeps, one at a time.
        self.later = []
        clock = types.SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)
        self.useFixture(fixtures.MonkeyPatch('trove_ceph.osc.connection.time', clock))
        self.connection = connection.Connection(self.database())

    def sleep(self, seconds):
        self.now += seconds
        if self.later:
            self.later.pop(0)()
