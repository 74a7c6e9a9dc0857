# SPDX-License-Identifier: Apache-2.0
"""What the commands have in common: help, options and output."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from osc_lib.command import command

from trove_ceph.osc import columns, connection

_WAIT_SEC = 3600

Shown = tuple[Sequence[str], Iterable[Any]]


def count(text: str) -> int:
    """Return a number that is not negative.

    :raises ValueError: the text is none
    """
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


class DocstringHelp(command.Command):
    """A command whose help keeps the lines of its docstring."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        return parser


class Lister(DocstringHelp, command.Lister):
    """A command that lists what instances have, the latest first, from all pages.

    :cvar what: is listed, in the plural
    :cvar short: the keys of the resources that it shows, by the titles of the columns
    :cvar more: those that ``--long`` adds
    """

    what: ClassVar[str]
    short: ClassVar[Mapping[str, str]]
    more: ClassVar[Mapping[str, str]]

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        self.add_filters(parser)
        parser.add_argument(
            '--limit',
            type=count,
            metavar='<number>',
            help='List at most this number, the latest first',
        )
        add_all_projects(parser, self.what)
        parser.add_argument('--long', action='store_true', help='Show more columns')
        return parser

    def add_filters(self, parser: argparse.ArgumentParser) -> None:
        """Add the options that choose what is listed."""
        add_instance_filter(parser, self.what)

    def criteria(self, api: Any, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Return what the common options of a list with ``--instance`` choose.

        :param api: finds the id of an instance
        """
        return {
            'limit': parsed_args.limit,
            'instance_id': parsed_args.instance and api.instance_id(parsed_args.instance),
            'all_projects': parsed_args.all_projects,
        }

    def shown(self, parsed_args: argparse.Namespace, found: Iterable[dict[str, Any]]) -> Shown:
        """Return resources with the columns that the options choose."""
        return listed(found, {**self.short, **(self.more if parsed_args.long else {})})


def connection_of(command: Any) -> connection.Connection:
    """Return the connection of a command to Trove's API."""
    return connection.Connection(command.app.client_manager.database)


def one(resource: dict[str, Any]) -> Shown:
    """Return one resource in the form that cliff shows."""
    return tuple(resource), tuple(columns.of(name, value) for name, value in resource.items())


def listed(resources: Iterable[dict[str, Any]], keys: Mapping[str, str]) -> Shown:
    """Return several resources in the form that cliff lists.

    :param keys: of the resources, by the titles of the columns
    """
    rows = (tuple(columns.of(key, each[key]) for key in keys.values()) for each in resources)
    return tuple(keys), rows


def add_instance_filter(parser: Any, what: str) -> None:
    """Add the option ``--instance`` of a list.

    :param parser: or a group of options that exclude each other
    :param what: is listed
    """
    parser.add_argument(
        '--instance', metavar='<instance>', help=f'List only {what} of this instance (name or ID)'
    )


def add_all_projects(parser: Any, what: str) -> None:
    """Add the option ``--all-projects`` of a list, as :func:`add_instance_filter`."""
    parser.add_argument(
        '--all-projects',
        action='store_true',
        help=f'List {what} of all projects (administrators)',
    )


def add_wait(parser: Any, help_text: str) -> None:
    """Add the options ``--wait`` and ``--timeout``.

    :param help_text: of the former
    """
    parser.add_argument('--wait', action='store_true', help=help_text)
    parser.add_argument(
        '--timeout',
        type=count,
        default=_WAIT_SEC,
        metavar='<seconds>',
        help='Longest wait in seconds, with --wait (default: %(default)s). The operation continues '
        'afterwards',
    )
