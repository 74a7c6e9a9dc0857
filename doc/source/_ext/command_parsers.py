# SPDX-License-Identifier: Apache-2.0
"""The parsers of the programs' command lines, from which their reference is generated."""

import argparse
from collections.abc import Iterator
from importlib import metadata
from unittest import mock

from oslo_config import cfg

from trove_ceph.cmd import guest, storage
from trove_ceph.cmd.manage import shell
from trove_ceph.imagebuild import cli as image
from trove_ceph_bench import arguments

_CLIENT = 'openstack.database.v1'
_DISTRIBUTION = 'trove-ceph'

Parsers = Iterator[tuple[str, argparse.ArgumentParser]]


def of(program: str) -> Parsers:
    """Yield the commands of a program with their parsers, the program itself first.

    :param program: a name of ``PROGRAMS``
    """
    return PROGRAMS[program]()


def _manage() -> Parsers:
    app = shell.Shell()
    app.parser.prog = app.NAME
    yield app.NAME, app.parser
    for name, point in sorted(app.command_manager):
        full = f'{app.NAME} {name}'
        command = point.load()(app, None, cmd_name=name)
        # Without it, "complete" would say in its epilog that it is a plugin.
        command.app_dist_name = 'cliff'
        yield full, command.get_parser(full)


def _bench() -> Parsers:
    yield from _with_commands(arguments.make_parser())


def _with_commands(parser: argparse.ArgumentParser) -> Parsers:
    yield parser.prog, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from ((command.prog, command) for command in action.choices.values())


def _image() -> Parsers:
    yield from _with_commands(image.make_parser())


def _storage() -> Parsers:
    # oslo.config completes its parser while it parses, and keeps it to itself.
    with mock.patch.object(argparse.ArgumentParser, 'print_help', autospec=True) as printed:
        try:
            storage.parse(cfg.ConfigOpts(), ['--help'])
        except SystemExit:
            [[parser, *_]] = [call.args for call in printed.call_args_list]
    yield storage.PROG, parser


def _guestagent() -> Parsers:
    parser = guest.make_parser()
    yield parser.prog, parser


def _client() -> Parsers:
    points = metadata.entry_points(group=_CLIENT)
    for point in sorted(points, key=lambda point: point.name):
        # python-troveclient has commands in this group, too.
        if point.value.startswith('trove_ceph.'):
            command = point.load()(None, None)
            command.app_dist_name = _DISTRIBUTION
            full = f'openstack {point.name.replace("_", " ")}'
            yield full, command.get_parser(full)


PROGRAMS = {
    'openstack': _client,
    'trove-ceph-bench': _bench,
    'trove-ceph-guestagent': _guestagent,
    'trove-ceph-image': _image,
    'trove-ceph-manage': _manage,
    'trove-ceph-storage': _storage,
}
