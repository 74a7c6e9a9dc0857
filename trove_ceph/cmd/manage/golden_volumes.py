# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage golden-volumes``: volumes with an initialised MySQL, for new instances."""

import argparse
import math
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.cmd.manage import base, columns, storage, storage_images
from trove_ceph.storage import golden, image_types, tasks

if TYPE_CHECKING:
    from trove_ceph.storage_service import rpcapi

_FIELDS = ('image', 'version', 'size_gib', 'state', 'clones', 'created_at')

EXIT_CODES = """\
exit status:
  0  the golden volumes were listed (list); it is ready (build); it does not exist any more (remove)
  1  it was not built, or not within --wait (build); clones read from it, or it is being built, so
     that it was not removed (remove)
  2  the command line is wrong; nothing was changed
  3  no service answered that has the keys, or the configuration file or the key file is wrong
"""
_EXAMPLES = """\
examples:
  Build a golden volume of 10 GiB in a pool, for the datastore versions with MySQL 9.7.4; after an
  interruption, run it again:
    trove-ceph-manage golden-volumes build nvme 9.7.4 10

  List those in two pools; remove one:
    trove-ceph-manage golden-volumes list nvme ssd
    trove-ceph-manage golden-volumes remove nvme/trove_ceph.golden.ID

New instances use the sizes in [trove_ceph_golden] sizes_gib of trove-taskmanager.
"""


class Group(base.Group):
    """Build, list and remove golden volumes.

    A golden volume has a file system and an initialised data directory of MySQL. New instances get
    a clone of it, so that their guests need not format and initialise.
    """

    examples = _EXAMPLES
    exit_codes = EXIT_CODES


class List(storage.StorageCommand, base.Lister):
    """List the golden volumes in pools.

    Those in the state "ready" are used. "building" and "built" without a job that builds them are
    left by an interrupted build; "outdated" ones are of an earlier release.
    """

    exit_codes = EXIT_CODES

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        parser.add_argument('pools', nargs='+', metavar='POOL', help='a pool of the service')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the golden volumes of all pools."""
        service = storage.connect(parsed_args)
        rows = [
            _row(facts)
            for pool in parsed_args.pools
            for listed in service.list_images(pool, golden.PREFIX)
            if (facts := _find(service, listed.image)) is not None
        ]
        if not rows:
            self.note('There are no golden volumes.')
        return _FIELDS, rows


class Build(storage.StorageCommand, base.Report):
    """Build a golden volume, and inspect it; do nothing if it is ready."""

    exit_codes = EXIT_CODES

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        parser.add_argument('pool', metavar='POOL', help='the pool of a tier')
        parser.add_argument(
            'version', type=_version, metavar='VERSION', help='of MySQL, such as 9.7.4'
        )
        parser.add_argument('size_gib', type=_size, metavar='GIB', help='the size of the volume')
        storage_images.add_wait(parser)
        return parser

    def make_report(self, parsed_args: argparse.Namespace) -> tuple[Mapping[str, Any], str]:
        """Return what was done, and the job."""
        volume = golden.GoldenVolume(parsed_args.pool, parsed_args.version, parsed_args.size_gib)
        progress = storage_images.Progress(self)
        text = f'{volume}: ready as {volume.image}'
        try:
            service = storage.connect(parsed_args)
            if _state(service, volume) is not golden.State.READY:
                work = tasks.GoldenTask.of(volume)
                operation_id = _find_operation(service, work)
                service.run(operation_id, work, parsed_args.wait, progress.note)
        except exceptions.StillRunningError as error:
            text = f'{error}; it continues, see "storage jobs"'
            if parsed_args.wait:
                self.exit_status = base.ExitStatus.DIFFERS
        except (exceptions.CephUnreachableError, exceptions.ServiceUnavailableError):
            raise
        except (exceptions.StorageError, exceptions.ServerFailedError) as error:
            text = str(error)
            self.exit_status = base.ExitStatus.DIFFERS
        job = storage.as_document(progress.last) if progress.last else None
        return {'text': text, 'image': str(volume.image), 'job': job}, text


class Remove(storage.StorageCommand, base.Report):
    """Remove a golden volume that no clone reads from; new instances use it no longer in any case.

    Clones are flattened within minutes after the creation of their instances.
    """

    exit_codes = EXIT_CODES

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'image',
            type=_golden_image,
            metavar='POOL/IMAGE',
            help='the golden volume, as "list" shows it',
        )
        return parser

    def make_report(self, parsed_args: argparse.Namespace) -> tuple[Mapping[str, Any], str]:
        """Return what was done."""
        image: image_types.ImageRef = parsed_args.image
        service = storage.connect(parsed_args)
        facts = _retire(service, image)
        if facts is None:
            text = f'{image}: does not exist'
        elif facts.children:
            clones = ', '.join(map(str, facts.children))
            text = (
                f'{image}: new instances use it no longer, but clones read from it: {clones}; '
                'repeat the command when they are flattened'
            )
            self.exit_status = base.ExitStatus.DIFFERS
        else:
            text = self._remove(service, facts)
        return {'text': text}, text

    def _remove(self, service: 'rpcapi.StorageAPI', facts: image_types.ImageFacts) -> str:
        try:
            trashed = service.trash(facts.image, facts.image_id)
        except exceptions.BusyError as error:
            self.exit_status = base.ExitStatus.DIFFERS
            return str(error)
        work = tasks.PurgeTask(trashed.pool, trashed.image_id)
        service.run(f'purge.{trashed.image_id}', work, math.inf)
        return f'{facts.image}: removed'


def _retire(
    service: 'rpcapi.StorageAPI', image: image_types.ImageRef
) -> image_types.ImageFacts | None:
    """Make sure that no new clone of a golden volume appears, and describe it."""
    facts = _find(service, image)
    if facts is None:
        return None
    if golden.State.READY.value in facts.snapshot_names:
        service.rename_snapshot(
            image.snapshot(golden.State.READY.value), golden.State.RETIRED.value
        )
        # A clone may just have been made.
        return _find(service, image)
    return facts


def _find(
    service: 'rpcapi.StorageAPI', image: image_types.ImageRef
) -> image_types.ImageFacts | None:
    try:
        return service.describe(image)
    except exceptions.NotFoundError:
        return None


def _state(service: 'rpcapi.StorageAPI', volume: golden.GoldenVolume) -> golden.State | None:
    facts = _find(service, volume.image)
    return None if facts is None else golden.state_of(facts)


def _find_operation(service: 'rpcapi.StorageAPI', work: tasks.GoldenTask) -> str:
    """Return the id of the last build if it can be continued, or else a new id."""
    for job in service.survey_jobs()[0]:
        if job.work == work:
            if job.state is not tasks.JobState.DONE:
                return job.operation_id
            break
    return f'golden.{uuid.uuid4()}'


def _row(facts: image_types.ImageFacts) -> tuple[Any, ...]:
    content = golden.find_content(facts)
    return (
        str(facts.image),
        columns.of(content and content.version),
        facts.size_bytes // units.Gi,
        str(golden.state_of(facts)),
        len(facts.children),
        columns.of(facts.created_at),
    )


def _version(text: str) -> str:
    if not golden.is_exact(text):
        raise argparse.ArgumentTypeError(f'{text!r} is not a version such as 9.7.4')
    return text


def _size(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= golden.MOST_GIB:
        raise argparse.ArgumentTypeError(f'{text!r} is not a number from 1 to {golden.MOST_GIB}')
    return int(text)


def _golden_image(text: str) -> image_types.ImageRef:
    image = storage_images.image_argument(text)
    if not golden.is_golden(image):
        raise argparse.ArgumentTypeError(f'{text!r} is not a golden volume')
    return image
