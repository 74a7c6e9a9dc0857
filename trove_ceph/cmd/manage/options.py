# SPDX-License-Identifier: Apache-2.0
"""Options that several groups of commands have, and the environment variables for them."""

import argparse
import os

#: Environment variables that stand for options, as OS_* does for those of OpenStack's clients. The
#: first is that of Ceph's own commands; several files of Trove are separated as in PATH.
CEPH_CONF = 'CEPH_CONF'
CEPH_USER = 'TROVE_CEPH_CEPH_USER'
TIERS_FILE = 'TROVE_CEPH_TIERS_FILE'
TROVE_CONF = 'TROVE_CEPH_TROVE_CONF'
STORAGE_CONF = 'TROVE_CEPH_STORAGE_CONF'

DEFAULT_TROVE_CONF = '/etc/trove/trove.conf'


def add_option(
    parser: argparse.ArgumentParser, name: str, variable: str, default: str, help_text: str
) -> None:
    """Add an option whose default an environment variable replaces.

    :param help_text: what it is; the variable and the default are added to it
    """
    metavar = 'NAME' if name.endswith('user') else 'PATH'
    found = os.environ.get(variable) or default
    text = f'{help_text} (default: ${variable}, else {default})'
    parser.add_argument(name, default=found, metavar=metavar, help=text)


def trove_conf() -> list[str]:
    """Return Trove's configuration files; the first is the one with the database."""
    return (os.environ.get(TROVE_CONF) or DEFAULT_TROVE_CONF).split(os.pathsep)


def add_ceph(parser: argparse.ArgumentParser) -> None:
    """Add the options for the cluster and the cephx user."""
    add_option(parser, '--ceph-conf', CEPH_CONF, '/etc/ceph/ceph.conf', "the cluster's ceph.conf")
    add_option(parser, '--ceph-user', CEPH_USER, 'admin', 'the cephx user without "client."')


def add_taskmanager_files(parser: argparse.ArgumentParser) -> None:
    """Add the option for the configuration files of trove-taskmanager; None stands for the default.

    :func:`trove_conf` is the default.
    """
    parser.add_argument(
        '--config-file',
        action='append',
        metavar='PATH',
        help='configuration file of trove-taskmanager; repeat for several (default: those in '
        f'${TROVE_CONF}, else {DEFAULT_TROVE_CONF})',
    )
