# SPDX-License-Identifier: Apache-2.0
"""What the areas of ``trove-ceph-manage`` have in common: a noun with verbs, help that teaches."""

import argparse
import os
from collections.abc import Callable
from typing import Any


class CommandGroup:
    """An area of work.

    :param areas: what ``add_subparsers`` of the command returned
    :param overview: what it is about
    :param examples: ends in an empty line
    :param exit_codes: told with each verb, too
    """

    def __init__(
        self,
        areas: Any,
        name: str,
        help_text: str,
        *,
        overview: str,
        examples: str,
        exit_codes: str,
    ):
        parser = areas.add_parser(
            name,
            help=help_text,
            description=overview,
            epilog=examples + exit_codes,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self._verbs = parser.add_subparsers(required=True, metavar='VERB')
        self._exit_codes = exit_codes

    def add_verb(
        self, name: str, function: Callable[[argparse.Namespace], int], help_text: str
    ) -> argparse.ArgumentParser:
        """Add a verb, and return its parser for more options.

        :param function: does it, and returns the exit status
        """
        parser = self._verbs.add_parser(
            name,
            help=help_text,
            description=f'{help_text[0].upper()}{help_text[1:]}.',
            epilog=self._exit_codes,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.set_defaults(function=function)
        return parser


#: Environment variables that stand for options, as OS_* does for those of OpenStack's clients. The
#: first is that of Ceph's own commands; several files of Trove are separated as in PATH.
CEPH_CONF = 'CEPH_CONF'
CEPH_USER = 'TROVE_CEPH_CEPH_USER'
TIERS_FILE = 'TROVE_CEPH_TIERS_FILE'
TROVE_CONF = 'TROVE_CEPH_TROVE_CONF'
STORAGE_CONF = 'TROVE_CEPH_STORAGE_CONF'


def add_option(
    parser: argparse.ArgumentParser, name: str, variable: str, default: str, help_text: str
) -> None:
    """Add an option whose default an environment variable may replace.

    :param help_text: what it is, to which both are added
    """
    metavar = 'NAME' if name.endswith('user') else 'PATH'
    found = os.environ.get(variable) or default
    text = f'{help_text} (default: ${variable}, else {default})'
    parser.add_argument(name, default=found, metavar=metavar, help=text)


def trove_conf(default: str) -> list[str]:
    """Return Trove's configuration files, that with the database first."""
    return (os.environ.get(TROVE_CONF) or default).split(os.pathsep)


def add_format(parser: argparse.ArgumentParser) -> None:
    """Let the output be a text or JSON."""
    parser.add_argument('--format', choices=('text', 'json'), default='text')


def add_ceph(parser: argparse.ArgumentParser) -> None:
    """Let the cluster and the key be chosen."""
    add_option(parser, '--ceph-conf', CEPH_CONF, '/etc/ceph/ceph.conf', "the cluster's ceph.conf")
    add_option(parser, '--ceph-user', CEPH_USER, 'admin', 'cephx name without "client."')
