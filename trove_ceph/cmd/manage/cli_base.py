# SPDX-License-Identifier: Apache-2.0
"""What the areas of ``trove-ceph-manage`` have in common: a noun with verbs, help that teaches."""

import argparse
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


def add_format(parser: argparse.ArgumentParser) -> None:
    """Let the output be a text or JSON."""
    parser.add_argument('--format', choices=('text', 'json'), default='text')


def add_ceph(parser: argparse.ArgumentParser) -> None:
    """Let the cluster and the key be chosen."""
    parser.add_argument(
        '--ceph-conf', default='/etc/ceph/ceph.conf', metavar='PATH', help='default: %(default)s'
    )
    parser.add_argument(
        '--ceph-user',
        default='admin',
        metavar='NAME',
        help='cephx name without "client." (default: %(default)s)',
    )
