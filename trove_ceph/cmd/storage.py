# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-storage``: serve what needs a Ceph key."""

import faulthandler
import logging as stdlib_logging
import os
import queue
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from oslo_config import cfg
from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.conf import metrics as metrics_conf
from trove_ceph.conf import qos as qos_conf
from trove_ceph.conf import storage as storage_conf
from trove_ceph.conf import verification as verification_conf
from trove_ceph.storage import malloc

LOG = logging.getLogger(__name__)

PROG = 'trove-ceph-storage'
_DESCRIPTION = (
    'Serve snapshots, clones, copies, limits and fencing of RBD images to Trove and to operators, '
    'over the message bus. This is the only process of trove_ceph that holds a Ceph key. Start as '
    'many copies as you like, on any hosts: they share the work, and one takes up what another '
    'that died has begun.'
)
_EPILOG = (
    'It reads /etc/trove-ceph/trove-ceph-storage.conf unless told otherwise, and needs four things '
    'in its section [trove_ceph_storage]: transport_url, a message bus that guests cannot reach; '
    'key_file, the keys that requests and replies are signed with, which "trove-ceph-manage '
    'storage keys create" makes; ceph_conf and ceph_user, by which it finds cluster and keyring; '
    'and tiers_file or pools, which say where it may work. SIGTERM ends it gracefully: jobs stop '
    'at their next piece, and are taken up there. Killing it does no harm either. '
    '"trove-ceph-manage storage jobs" tells what it does.'
)


def main() -> int:
    """Serve until told to end; return the exit status."""
    # oslo.messaging imports eventlet, which tells so, and uses threads all the same.
    warnings.filterwarnings('ignore', message=r'\s*Eventlet is deprecated')
    malloc.share()
    # If Ceph's libraries abort, the log has the requests that they were serving.
    faulthandler.enable()
    try:
        return run(sys.argv[1:])
    except ModuleNotFoundError as error:
        # rados and rbd come from the distribution, the rest with the extra.
        print(
            f'{PROG}: the Python module {error.name} is missing; install the packages '
            f"python3-rados and python3-rbd, and 'trove-ceph[storage]'",
            file=sys.stderr,
        )
        return 1


def run(arguments: Sequence[str]) -> int:
    """Serve with these command line arguments; return the exit status."""
    # oslo.messaging has options that it registers with this one only.
    conf = cfg.CONF
    parse(conf, arguments)
    logging.setup(conf, PROG)
    try:
        _serve(conf)
    except (exceptions.TroveCephError, cfg.Error) as error:
        LOG.error('Cannot serve: %s', error)
        stdlib_logging.shutdown()
        return 1


def parse(conf: cfg.ConfigOpts, arguments: Sequence[str]) -> None:
    """Register the options of the service, and read the command line and the files.

    :raises SystemExit: help was requested, or the arguments are invalid
    """
    logging.register_options(conf)
    storage_conf.register(conf)
    qos_conf.register(conf)
    metrics_conf.register_storage(conf)
    verification_conf.register(conf)
    conf(
        list(arguments),
        project='trove-ceph',
        prog=PROG,
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )


def listen_for_the_end() -> 'queue.SimpleQueue[int]':
    """Take the signals that tell the process to end; they are put into the queue returned."""
    # An Event has a lock, which the handler could find held by the very thread that it interrupts.
    told: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: told.put(number))
    return told


def _serve(conf: cfg.ConfigOpts) -> NoReturn:
    # Told to end while it starts, it ends when it has started.
    told = listen_for_the_end()
    # Only here, so that --help works everywhere.
    from trove_ceph.storage_service import factory, rpcapi, server

    options = conf.trove_ceph_storage
    made = factory.make(options, conf.trove_ceph_verification)
    failures: list[str] = []

    def fail(reason: str) -> None:
        failures.append(reason)
        told.put(signal.SIGTERM)

    # Whoever watches the process starts it again; the work goes on with other copies meanwhile.
    made.on_failure = fail
    service = server.Server(made, rpcapi.connect(conf))
    limits = _limits(conf)
    exported = _exporter(conf, made, limits)
    service.start()
    if limits:
        limits.start()
    if exported:
        exported.start()
    told.get()
    if exported:
        exported.stop()
    service.stop()
    if limits:
        limits.stop(options.stop_timeout_sec)
    stdlib_logging.shutdown()
    # A thread that waits for Ceph would keep the process. And Ceph's libraries abort it at times if
    # their clients still run while the interpreter ends.
    os._exit(1 if failures else 0)


def _limits(conf: cfg.ConfigOpts) -> Any:
    """Return what keeps the limits of volumes, None where it is not asked for."""
    if not conf.trove_ceph_qos.enabled:
        return None
    from trove_ceph.storage_service import factory
    from trove_ceph.tiers.qos import service as qos_service

    options = conf.trove_ceph_storage
    return qos_service.of_configuration(conf, options.tiers_file, factory.storage(options))


def _exporter(conf: cfg.ConfigOpts, service: Any, limits: Any) -> Any:
    """Return what exports the metrics of this process, None where it is not asked for."""
    if not conf.trove_ceph_metrics.enabled:
        return None
    from trove_ceph.metrics import storage_exporter
    from trove_ceph.storage_service import factory

    storage = factory.storage(conf.trove_ceph_storage)
    return storage_exporter.make(conf, service, storage, limits)
