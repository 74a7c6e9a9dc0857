# SPDX-License-Identifier: Apache-2.0
"""A private RabbitMQ node for a test, with the users and permissions of the lab."""

import os
import subprocess
import time

import fixtures
import jinja2
import kombu

from trove_ceph.tests.functional import base, ports

SERVER = '/usr/lib/rabbitmq/bin/rabbitmq-server'
TEMPLATES = base.CHECKOUT / 'lab' / 'roles' / 'base' / 'templates'
START_SEC = 120
STOP_SEC = 30
PASSWORDS = {
    name: f'{name}-password'
    for name in ('openstack', 'trove', 'guest', 'storage', 'caller', 'events')
}
#: Names of users and virtual hosts, as in the lab's definitions.
USERS = {
    'openstack': ('openstack', '/'),
    'trove': ('trove', 'trove'),
    'guest': ('trove-guest', 'trove'),
    'storage': ('trove-ceph-storage', 'trove-ceph'),
    'caller': ('trove-ceph-caller', 'trove-ceph'),
    'events': ('trove-ceph-events', '/'),
}


class RabbitMQ(fixtures.Fixture):
    """A node that is stopped at the end of the test.

    :param directory: the :class:`pathlib.Path` for its data and log
    :param has_durable_exchanges: services of OpenStack are configured for quorum queues
    """

    def __init__(self, directory, has_durable_exchanges=False):
        self._directory = directory
        self._has_durable_exchanges = has_durable_exchanges

    def _setUp(self):
        self.port, epmd, distribution = ports.free_ports(3)
        definitions = self._directory / 'definitions.json'
        template = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES))
        definitions.write_text(
            template.get_template('rabbitmq-definitions.json.j2').render(
                rabbit_passwords=PASSWORDS,
                volume_events_topic='trove-ceph-qos',
                has_durable_exchanges=self._has_durable_exchanges,
            )
        )
        config = self._directory / 'rabbitmq.conf'
        config.write_text(
            f'listeners.tcp.1 = 127.0.0.1:{self.port}\n'
            f'load_definitions = {definitions}\n'
            'log.file = false\nlog.console = true\nlog.console.level = info\n'
        )
        environment = os.environ | {
            'HOME': str(self._directory),
            'ERL_EPMD_ADDRESS': '127.0.0.1',
            'ERL_EPMD_PORT': str(epmd),
            'RABBITMQ_NODENAME': 'test@localhost',
            'RABBITMQ_DIST_PORT': str(distribution),
            'RABBITMQ_MNESIA_BASE': str(self._directory / 'mnesia'),
            'RABBITMQ_LOG_BASE': str(self._directory),
            'RABBITMQ_CONFIG_FILE': str(config.with_suffix('')),
            'RABBITMQ_ENABLED_PLUGINS_FILE': str(self._directory / 'enabled_plugins'),
            'RABBITMQ_PID_FILE': str(self._directory / 'pid'),
            'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS': '+sbwt none +sbwtdcpu none +sbwtdio none',
        }
        log = (self._directory / 'rabbitmq.log').open('w')
        self.addCleanup(log.close)
        # An epmd of its own, which ends with the node; a shared one would stay.
        self._start(['/usr/bin/epmd', '-address', '127.0.0.1'], environment, log)
        self._node = self._start([SERVER], environment, log)
        self._await()

    def _start(self, command, environment, log):
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self.addCleanup(self._stop, process)
        return process

    def _stop(self, process):
        process.terminate()
        try:
            process.wait(STOP_SEC)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _await(self):
        deadline = time.monotonic() + START_SEC
        while True:
            try:
                with self.connection('openstack') as connection:
                    connection.ensure_connection(max_retries=1, timeout=1)
                    return
            except (OSError, kombu.exceptions.OperationalError):
                if self._node.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def url(self, role, virtual_host=None):
        """Return the transport URL of a role's user, for its own virtual host or another one."""
        user, own = USERS[role]
        path = (virtual_host or own).replace('/', '%2F')
        return f'rabbit://{user}:{PASSWORDS[role]}@127.0.0.1:{self.port}/{path}'

    def connection(self, role, virtual_host=None):
        """Return an unopened connection of a role's user, without oslo.messaging."""
        return kombu.Connection(self.url(role, virtual_host).replace('rabbit:', 'amqp:', 1))
