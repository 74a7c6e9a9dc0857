# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage storage images``, ``flatten`` and ``unfence``: the images of a pool."""

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import Any

from trove_ceph import exceptions
from trove_ceph.cmd.manage import base, columns, storage
from trove_ceph.osc import columns as osc_columns
from trove_ceph.storage import fencing, image_types, tasks


def add_wait(parser: argparse.ArgumentParser) -> None:
    """Add the option of commands that wait for a job of the service."""
    parser.add_argument(
        '--wait',
        type=float,
        default=math.inf,
        metavar='SEC',
        help='how long to wait for the end; the work continues afterwards, as it does after '
        'Ctrl-C; 0 only starts it (default: until it has ended)',
    )


class Images(storage.StorageCommand, base.Lister):
    """List the images of a pool in order of their names."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        parser.add_argument('pool', metavar='POOL', help='one of the pools of the service')
        parser.add_argument(
            '--prefix', default='', metavar='TEXT', help='list names that begin with this text'
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Any]:
        """Return the images; they are read as they are printed."""
        listed = storage.connect(parsed_args).list_images(parsed_args.pool, parsed_args.prefix)
        return ('name', 'id'), ((one.image.name, one.image_id) for one in listed)


class Flatten(storage.StorageCommand, base.Report):
    """Copy into a clone all that it reads from its parent, which can then be deleted."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'image', type=image_argument, metavar='POOL/IMAGE', help='the clone; it may be attached'
        )
        add_wait(parser)
        return parser

    def make_report(self, parsed_args: argparse.Namespace) -> tuple[Mapping[str, Any], str]:
        """Return what was done, and the job."""
        progress = Progress(self)
        try:
            text = _flatten(parsed_args, progress)
        except exceptions.StillRunningError as error:
            text = f'{error}; it continues, see "storage jobs"'
            if parsed_args.wait:
                self.exit_status = base.ExitStatus.DIFFERS
        except exceptions.CephUnreachableError:
            raise
        except exceptions.StorageError as error:
            text = str(error)
            self.exit_status = base.ExitStatus.DIFFERS
        job = storage.as_document(progress.last) if progress.last else None
        return {'text': text, 'job': job}, text


def _flatten(parsed_args: argparse.Namespace, progress: 'Progress') -> str:
    image: image_types.ImageRef = parsed_args.image
    service = storage.connect(parsed_args)
    facts = service.describe(image)
    if facts.parent is None:
        return f'{image}: has no parent'
    operation_id = tasks.FlattenTask.operation_id(facts.image_id)
    service.run(operation_id, tasks.FlattenTask(image), parsed_args.wait, progress.note)
    return f'{image}: flattened; it no longer reads from its parent'


class Progress:
    """Prints the progress of a job to standard error, each line once."""

    def __init__(self, command: base.Command) -> None:
        self.last: tasks.Job | None = None
        self._command = command
        self._shown = ''

    def note(self, found: tasks.Job) -> None:
        """Print where a job is."""
        self.last = found
        done = f'{found.done_bytes / found.total_bytes:.0%}' if found.total_bytes else ''
        text = ' '.join(filter(None, [found.state, found.phase, done]))
        if text != self._shown:
            left = f'; {found.left_sec:.0f} s left' if found.left_sec else ''
            self._command.note(text + left)
            self._shown = text


class Unfence(storage.StorageCommand, base.Lister):
    """Remove the clients that were fenced off images from Ceph's blocklist.

    Without --yes-clients-are-dead it lists them and changes nothing.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        parser.add_argument('images', type=image_argument, nargs='+', metavar='POOL/IMAGE')
        parser.add_argument(
            '--yes-clients-are-dead',
            action='store_true',
            help='confirm that their processes have ended: a process that was only cut off or '
            'paused would continue to write, beside the new client, and destroy the data',
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the images with their clients."""
        service = storage.connect(parsed_args)
        is_agreed = parsed_args.yes_clients_are_dead
        rows = []
        for image in parsed_args.images:
            clients, unfenced, problem = [], False, None
            try:
                clients = sorted(fencing.recorded(service.describe(image)))
                if clients and is_agreed:
                    service.unfence(image)
                    unfenced = True
            except exceptions.StorageError as error:
                # The other images are tried all the same.
                problem = str(error)
            rows.append((str(image), clients, unfenced, problem))
        if any(problem for *_, problem in rows):
            self.exit_status = base.ExitStatus.DIFFERS
        elif not is_agreed and any(clients for _, clients, *_ in rows):
            self.exit_status = base.ExitStatus.REFUSED
            self.note(
                'Nothing was changed. If the processes of all these clients have ended, add '
                '--yes-clients-are-dead.'
            )
        return ('image', 'clients', 'unfenced', 'error'), [
            (image, osc_columns.Words(clients), unfenced, columns.of(problem))
            for image, clients, unfenced, problem in rows
        ]


def image_argument(text: str) -> image_types.ImageRef:
    """Return the image that an argument of the command line names."""
    pool, slash, name = text.partition('/')
    if not (pool and slash and name):
        raise argparse.ArgumentTypeError(f'{text!r} is not POOL/IMAGE')
    return image_types.ImageRef(pool, name)
