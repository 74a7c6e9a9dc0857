# SPDX-License-Identifier: Apache-2.0
"""Commands in the documents, read as their programs read them."""

import argparse
import contextlib
import io
import itertools
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from cliff import commandmanager
from kolla.common import config as kolla_config
from kolla_ansible.cmd import genpwd
from oslo_config import cfg
from trove.cmd import manage

from trove_ceph.cmd.manage import shell
from trove_ceph.imagebuild import cli as image

_PROMPT = re.compile(r'^\s+[$#] (.*)$')
_CLIENT = ('openstack', 'database')


class Command(NamedTuple):
    """A command of a page.

    :param words: the program, without directories, and its arguments
    """

    page: Path
    line: int
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f'{self.page.name}:{self.line}: {shlex.join(self.words)}'


def commands(page: Path) -> Iterator[Command]:
    """Yield the commands after prompts, with their continuation lines; comments are left out."""
    lines = iter(enumerate(page.read_text().splitlines(), 1))
    for number, line in lines:
        found = _PROMPT.match(line)
        if not found:
            continue
        text = found.group(1)
        while text.endswith('\\'):
            text = text[:-1] + next(lines)[1].strip()
        with contextlib.suppress(ValueError):  # prose with an apostrophe after a "#"
            words = shlex.split(text, comments=True)
            for _, part in itertools.groupby(words, lambda word: word in ('|', '&&', '||', ';')):
                yield Command(page, number, tuple(part))


def find_problem(command: Command) -> str | None:
    """Return what a program says against its command line; None if nothing, or not checked."""
    for index, word in enumerate(command.words):
        # Before the program may be sudo, "docker exec", variables and more.
        rest = list(command.words[index + 1 :])
        name = Path(word).name
        if name == 'trove-ceph-manage':
            return _cliff(shell.CommandManager(), rest)
        if name == 'trove-ceph-image' or word.endswith('lab/images/build'):
            return _parse(image.make_parser().parse_args, rest)
        if name == 'trove-manage':
            return _trove(rest)
        if (name, *rest[:1]) == _CLIENT:
            # Of this package and of python-troveclient.
            return _cliff(commandmanager.CommandManager('openstack.database.v1'), rest)
        if name in _KOLLA:
            return _KOLLA[name](rest)
    return None


def _kolla_ansible(words: list[str]) -> str | None:
    return _cliff(commandmanager.CommandManager('kolla_ansible.cli'), words)


def _kolla_build(words: list[str]) -> str | None:
    # The file that the command reads is not there, and an empty one is as good for the options.
    if '--config-file' in words:
        words[words.index('--config-file') + 1] = os.devnull
    conf = cfg.ConfigOpts()
    return _parse(lambda: kolla_config.parse(conf, words, prog='kolla-build'))


def _kolla_genpwd(words: list[str]) -> str | None:
    with (
        mock.patch.object(genpwd, 'genpwd'),
        mock.patch.object(genpwd.sys, 'argv', ['kolla-genpwd', *words]),
    ):
        return _parse(genpwd.main)


#: What parses the words after each program of Kolla.
_KOLLA = {
    'kolla-ansible': _kolla_ansible,
    'kolla-build': _kolla_build,
    'kolla-genpwd': _kolla_genpwd,
}


def _cliff(manager: Any, words: list[str]) -> str | None:
    try:
        factory, name, rest = manager.find_command(words)
    except ValueError as error:
        return str(error)
    # The command of a group takes any words, to say what the group has.
    in_group = any(one.startswith(f'{name} ') for one, _ in manager)
    if in_group and rest and not rest[0].startswith('-'):
        return f'{name} has no command {rest[0]}'
    application = mock.Mock(spec_set=['command_manager', 'NAME'])
    application.configure_mock(command_manager=manager, NAME='program')
    return _parse(factory(application, None, cmd_name=name).get_parser(name).parse_args, rest)


def _trove(words: list[str]) -> str | None:
    parser = argparse.ArgumentParser()
    parser.add_argument('--config-file')
    # Trove defines its parsers within main(), just before it reads the command line.
    with (
        mock.patch.object(manage.cfg, 'custom_parser') as defined,
        mock.patch.object(manage.cfg, 'parse_args', side_effect=SystemExit),
        contextlib.suppress(SystemExit),
    ):
        manage.main()
    [(_, actions)] = [call.args for call in defined.call_args_list]
    actions(parser.add_subparsers(required=True))
    return _parse(parser.parse_args, words)


def _parse(parse: Any, *words: list[str]) -> str | None:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            parse(*words)
        except SystemExit as ended:
            if ended.code:
                return said.getvalue().strip().splitlines()[-1]
    return None
