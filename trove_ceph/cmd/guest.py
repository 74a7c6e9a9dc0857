# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-guestagent``: bring the data volume into service, then be Trove's guest agent.

A guest of a pool of warm guests first waits until it becomes an instance.

Trove's own entry point formats and mounts a volume that is not mounted, by means of ``xfs_admin
-l`` for XFS, which newer xfsprogs answer with an error, so the agent never starts. It leaves a
mounted volume alone. Mounting it first therefore replaces that step and nothing else.

With ``--wait-for FILE`` the agent may be started before its configuration is there: it loads its
modules, and begins once the file exists.
"""

import argparse
import logging as stdlib_logging
import os
import sys
import time

from oslo_log import log as logging
from trove.cmd import guest as trove_guest
from trove.common import cfg

from trove_ceph import exceptions
from trove_ceph.conf import guest as guest_conf
from trove_ceph.guestagent import (
    guest_identity,
    instance_volume,
    interface_wait,
    preload,
    waiting_guest,
)

# Trove loads it by name, once it has read the configuration.
from trove_ceph.guestagent import manager as _manager  # noqa: F401
from trove_ceph.host import filesystem
from trove_ceph.trove_compat import check, hooks, strict_rpc

LOG = logging.getLogger(__name__)
CONF = cfg.CONF

_WAIT_POLL_SEC = 0.2
_WAIT_REPORT_SEC = 60
_DESCRIPTION = """\
Bring the data volume of a database instance into service, then be Trove's guest agent. Runs in the
guest, instead of trove-guestagent. A guest of a pool of warm guests first waits until it becomes an
instance.

All other arguments are those of trove-guestagent, such as --config-file, --config-dir and --debug.
"""
_EPILOG = """\
examples:
  trove-ceph-guestagent --config-dir=/etc/trove/conf.d
  trove-ceph-guestagent --wait-for=/run/guest-configured --config-dir=/etc/trove/conf.d

exit status:
  1  the data volume cannot be used, or the guest got no instance, or not all of its interfaces; the
     agent accepted no request
  2  the command line is wrong
"""


def prepare_volume() -> None:
    """Format, mount, grow and tune the data volume that Trove's configuration names.

    :raises TroveCephError: the volume cannot be used; Trove's agent must not start then, because it
        would format what this code refused to
    """
    instance_volume.prepare(filesystem.HostStorage(), CONF.trove_ceph.data_volume_id)


def wait_for_instance() -> None:
    """Return when this guest has an instance: at once, unless it is a waiting guest.

    The interfaces of the instance are attached later, while the agent starts.

    :raises TroveCephError: it has none
    """
    if not guest_identity.is_waiting(CONF):
        return
    binding = waiting_guest.wait(CONF)
    # The files of the instance have replaced those of the waiting guest.
    CONF.reset()
    cfg.parse_args(sys.argv)
    interface_wait.begin(binding.interfaces, CONF.trove_ceph.interface_ready_timeout_sec)


def main() -> int | None:
    """Run the agent; return 1 if it has no instance, no usable volume or not all interfaces."""
    marker = _take_wait_for(sys.argv)
    waited = None if marker is None else _load_and_wait(marker)
    guest_conf.register(CONF)
    logging.register_options(CONF)
    cfg.parse_args(sys.argv)
    logging.setup(CONF, 'trove')
    if waited:
        LOG.info('Loaded modules for %.1f s, then waited %.1f s for %s', *waited, marker)
    try:
        check.check(hooks.GUEST)
        strict_rpc.use(strict_rpc.StrictSerializer, has_answers=True)
        wait_for_instance()
        prepare_volume()
        # Trove parses the command line itself, and options cannot be registered between two parses.
        CONF.reset()
        return trove_guest.main()
    except exceptions.TroveCephError as error:
        LOG.error('The agent cannot start: %s', error)
        stdlib_logging.shutdown()
        return 1


def _load_and_wait(marker: str) -> tuple[float, float]:
    """Load the modules, wait until the file exists, and return the seconds of each.

    The log is configured only then, so standard error tells of the wait each minute.
    """
    started = time.monotonic()
    preload.run()
    loaded = reported = time.monotonic()
    while not os.path.exists(marker):
        time.sleep(_WAIT_POLL_SEC)
        if time.monotonic() - reported >= _WAIT_REPORT_SEC:
            reported = time.monotonic()
            print(f'Waiting for {marker} since {reported - loaded:.0f} s', file=sys.stderr)
    return loaded - started, time.monotonic() - loaded


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the agent's own arguments; Trove parses the others."""
    parser = argparse.ArgumentParser(
        prog='trove-ceph-guestagent',
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        '--wait-for',
        metavar='FILE',
        help='load all modules, then wait until this file exists before reading the configuration; '
        'for images that start the agent before cloud-init has ended',
    )
    return parser


def _take_wait_for(argv: list[str]) -> str | None:
    """Remove ``--wait-for`` from the command line, which Trove parses, and return its value."""
    known, argv[1:] = make_parser().parse_known_args(argv[1:])
    return known.wait_for
