# SPDX-License-Identifier: Apache-2.0
"""What the commands of ``trove-ceph-manage`` have in common: help, errors, exit status, output."""

import abc
import argparse
import enum
import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

from cliff import command, lister, show
from cliff.formatters import base as formatters
from stevedore import extension

from trove_ceph import exceptions
from trove_ceph.cmd.manage import columns

if TYPE_CHECKING:
    from trove_ceph.cmd.manage import shell


class ExitStatus(enum.IntEnum):
    """How a command ended; the help of each group says what it means there."""

    OK = 0
    DIFFERS = 1
    REFUSED = 2
    UNAVAILABLE = 3


_STATUS_OF_ERROR = (
    (exceptions.InvalidTiersError, ExitStatus.REFUSED),
    (exceptions.InvalidHostsError, ExitStatus.REFUSED),
    (exceptions.InvalidFleetError, ExitStatus.REFUSED),
    (exceptions.OutputRefusedError, ExitStatus.REFUSED),
    (exceptions.ConsequencesNotAcceptedError, ExitStatus.REFUSED),
    (exceptions.ChangeNotSeenError, ExitStatus.DIFFERS),
    (exceptions.TroveCephError, ExitStatus.UNAVAILABLE),
)


class Command(command.Command):
    """A command; its docstring is the description that ``--help`` prints.

    :ivar exit_status: what the command returns if it raises no error
    :ivar failure: an error that is raised after the output
    """

    #: Printed below the options.
    examples: ClassVar[str] = ''
    exit_codes: ClassVar[str] = ''
    # Two options of one name are a mistake here, which cliff would not tell.
    conflict_handler = 'error'

    app: 'shell.Shell'
    exit_status = ExitStatus.OK
    failure: exceptions.TroveCephError | None = None

    def get_epilog(self) -> str:
        """Return the examples and the meaning of the exit status."""
        return '\n'.join(filter(None, [self.examples, self.exit_codes]))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser, with help that keeps the lines of description and examples."""
        parser = super().get_parser(prog_name)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the command; print an error as one line and return its exit status."""
        try:
            status = super().run(parsed_args)
            if self.failure:
                raise self.failure
        except exceptions.TroveCephError as error:
            self.app.LOG.error(
                ' '.join(str(error).split()), exc_info=self.app.options.debug and error
            )
            return self.status_of(error)
        return self.exit_status or status

    def status_of(self, error: exceptions.TroveCephError) -> ExitStatus:
        """Return the exit status for an error."""
        return next(status for kind, status in _STATUS_OF_ERROR if isinstance(error, kind))

    def note(self, text: str) -> None:
        """Print what is not part of the result to standard error; nothing with --quiet."""
        if not self.app.is_quiet:
            print(text, file=self.app.stderr, flush=True)


class Lister(Command, lister.Lister):
    """A command that prints a list.

    The names of columns are the keys in JSON and YAML, which other programs rely on.
    """

    #: The columns that the table shows unless --column names others; empty for all.
    table_columns: ClassVar[Sequence[str]] = ()

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Any
    ) -> int:
        """Print the rows."""
        if parsed_args.formatter == 'table' and not parsed_args.columns:
            parsed_args.columns = list(self.table_columns)
        return super().produce_output(parsed_args, column_names, data)


class ShowOne(Command, show.ShowOne):
    """A command that prints the fields of one object."""


class _Text(formatters.SingleFormatter):
    """Prints what a report says in words."""

    text = ''

    def add_argument_group(self, parser: argparse.ArgumentParser) -> None:
        """Add no options."""

    def emit_one(
        self,
        column_names: Sequence[str],
        data: Sequence[Any],
        stdout: TextIO,
        parsed_args: argparse.Namespace,
    ) -> None:
        """Print the text."""
        if self.text:
            stdout.write(f'{self.text}\n')


class Report(ShowOne):
    """A command that prints text for people, and the same as a document with ``-f json``.

    It is for what neither a table of rows nor one of fields can show, such as a plan.
    """

    @property
    def formatter_default(self) -> str:
        """The format without ``-f``."""
        return 'text'

    def _load_formatter_plugins(self) -> extension.ExtensionManager:
        self._text = _Text()
        found = super()._load_formatter_plugins()
        point = importlib.metadata.EntryPoint('text', f'{__name__}:_Text', self.formatter_namespace)
        text = extension.Extension(point.name, point, _Text, self._text)
        return extension.ExtensionManager.make_test_instance([*found, text])

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the document's fields."""
        document, self._text.text = self.make_report(parsed_args)
        return tuple(document), tuple(map(columns.of, document.values()))

    @abc.abstractmethod
    def make_report(self, parsed_args: argparse.Namespace) -> tuple[Mapping[str, Any], str]:
        """Do the work; return the document and the text."""

    def show_progress(self, parsed_args: argparse.Namespace, text: str) -> None:
        """Print a line of the text at once; nothing if the document was asked for."""
        if parsed_args.formatter == 'text':
            print(text, file=self.app.stdout, flush=True)


class Group(Command):
    """A group of commands, whose help explains what they have in common."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser, with the commands of the group in its description."""
        parser = super().get_parser(prog_name)
        name = prog_name.removeprefix(f'{self.app.NAME} ')
        commands = [each for each, _ in self.app.command_manager if each.startswith(f'{name} ')]
        parser.usage = f'{prog_name} COMMAND ...'
        parser.add_argument(
            'command',
            nargs='*',
            metavar='COMMAND',
            help=', '.join(each.removeprefix(f'{name} ') for each in sorted(commands)),
        )
        self._parser = parser
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Refuse a command line that names no command of the group."""
        given = ' '.join(parsed_args.command)
        self._parser.error(
            f'there is no command {given!r}; --help lists the commands'
            if given
            else 'name a command; --help lists them'
        )
