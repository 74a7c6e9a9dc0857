# SPDX-License-Identifier: Apache-2.0
"""A copy of the storage service in a process of its own, to be killed; without a bus.

Each line of its input is a request as it would cross the bus, each line of its output the reply to
one, with the number of the request. SIGTERM stops it as it stops the service.
"""

import json
import os
import sys
import threading

import oslo_messaging as messaging
from oslo_config import cfg

from trove_ceph import exceptions
from trove_ceph.cmd import storage as command
from trove_ceph.conf import storage as storage_conf
from trove_ceph.conf import verification as verification_conf
from trove_ceph.storage_service import factory, serializer


def answer(endpoint, request):
    try:
        arguments = {name: serializer.decode(value) for name, value in request['arguments'].items()}
        return {'result': serializer.encode(getattr(endpoint, request['verb'])({}, **arguments))}
    except messaging.ExpectedException as expected:
        error = expected.exc_info[1]
    except exceptions.InvalidRequestError as refused:
        error = refused
    return {'error': type(error).__name__, 'message': str(error)}


def listen(endpoint):
    for line in sys.stdin:
        threading.Thread(target=reply, args=(endpoint, json.loads(line)), daemon=True).start()


def reply(endpoint, request):
    content = {'number': request['number'], **answer(endpoint, request)}
    # In one write, because other threads write, too.
    sys.stdout.write(f'{json.dumps(content)}\n')
    sys.stdout.flush()


def main(name, *arguments):
    conf = cfg.ConfigOpts()
    storage_conf.register(conf)
    verification_conf.register(conf)
    conf(list(arguments))
    stop_requests = command.listen_for_the_end()
    service = factory.make(conf.trove_ceph_storage, conf.trove_ceph_verification, name)
    service.start()
    threading.Thread(target=listen, args=(service.endpoint,), daemon=True).start()
    print('serving', flush=True)
    stop_requests.get()
    os._exit(0 if service.stop() else 1)


if __name__ == '__main__':
    main(*sys.argv[1:])
