# SPDX-License-Identifier: Apache-2.0
"""Log in to a message bus, and say why if that fails: check_login.py rabbit://URL"""

import sys

import amqp.exceptions
import kombu

try:
    # kombu knows RabbitMQ's protocol as amqp.
    with kombu.Connection(
        sys.argv[1].replace('rabbit://', 'amqp://', 1), connect_timeout=10
    ) as bus:
        bus.ensure_connection(max_retries=2, interval_start=1)
except (OSError, amqp.exceptions.AMQPError, kombu.exceptions.OperationalError) as error:
    sys.exit(f'{type(error).__name__}: {error}')
