# SPDX-License-Identifier: Apache-2.0
"""The queues of guest agents on the message bus, which must not pass from one server to the next.

A queue keeps the requests for an agent that is gone, and RabbitMQ may still count that agent as a
consumer: requests for the new one would go to the old one. oslo.messaging has no verb to delete it.
"""

import ssl
from typing import Any

import kombu
import oslo_messaging as messaging
from oslo_config import cfg
from oslo_log import log as logging

LOG = logging.getLogger(__name__)

_DEFAULT_PORT = 5672
_TIMEOUT_SEC = 5


def delete(conf: cfg.ConfigOpts, instance_id: str) -> bool:
    """Delete the queues of an instance's agent; idempotent, and best effort.

    It takes some seconds for each host of the bus that does not answer.

    :param conf: Trove's, whose bus the agents use
    :returns: whether they are deleted
    """
    url = messaging.TransportURL.parse(conf)
    if not url.transport.startswith('rabbit'):
        return False
    topic = f'guestagent.{instance_id}'
    for host in url.hosts:
        try:
            # The second one is for requests to one server of the topic.
            _delete(
                _connection(conf.oslo_messaging_rabbit, url, host), topic, f'{topic}.{instance_id}'
            )
            return True
        except Exception as error:
            # Whatever it is, the new agent works without it.
            LOG.warning(
                'Instance %s: the queues of its agent cannot be deleted at %s: %s',
                *(instance_id, host.hostname, error),
            )
    return False


def _delete(connection: kombu.Connection, *queues: str) -> None:
    with connection as bus:
        bus.connect()
        for queue in queues:
            with bus.channel() as channel:
                channel.queue_delete(queue)


def _connection(options: Any, url: messaging.TransportURL, host: Any) -> kombu.Connection:
    return kombu.Connection(
        hostname=host.hostname,
        port=host.port or _DEFAULT_PORT,
        userid=host.username,
        password=host.password,
        virtual_host=url.virtual_host or '/',
        login_method=options.rabbit_login_method,
        ssl=_tls(options, host.hostname),
        connect_timeout=_TIMEOUT_SEC,
        transport='pyamqp',
        transport_options={'read_timeout': _TIMEOUT_SEC, 'write_timeout': _TIMEOUT_SEC},
    )


def _tls(options: Any, hostname: str) -> Any:
    """Return the parameters of TLS, as oslo.messaging reads the options."""
    if not options.ssl:
        return False
    found: dict[str, Any] = {}
    if options.ssl_key_file:
        found['keyfile'] = options.ssl_key_file
    if options.ssl_cert_file:
        found['certfile'] = options.ssl_cert_file
    if options.ssl_ca_file:
        found |= {
            'ca_certs': options.ssl_ca_file,
            'cert_reqs': ssl.CERT_REQUIRED,
            'server_hostname': hostname,
        }
    return found or True
