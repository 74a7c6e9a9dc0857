# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage storage``: look at the storage service, its jobs and images; mend those."""

import argparse
import collections
import json
import math
import sys
import time
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import prettytable
from oslo_config import cfg
from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.cmd.manage import storage_image, storage_keys
from trove_ceph.cmd.manage.cli_base import STORAGE_CONF, CommandGroup, add_format, add_option
from trove_ceph.conf import storage as storage_conf
from trove_ceph.storage import fencing, image_types, tasks
from trove_ceph.storage.tasks import JobState

if TYPE_CHECKING:
    from trove_ceph.storage_service import rpcapi

OK = 0
TROUBLE = 1
DISAGREED = 2
DEFAULT_CONFIG = '/etc/trove-ceph/trove-ceph-storage.conf'

_EXIT_CODES = """\
exit status:
  0  it answers, and no job has failed or lies interrupted (status); it is done (all others)
  1  a pool does not answer (status, jobs), a job has failed or lies interrupted (status), the job
     is not there (cancel), the image was not flattened, or not within --wait (flatten), or an image
     was not unfenced (unfence)
  2  the command line is wrong, or the consequence was not agreed to (unfence); nothing was changed
  3  nobody answered who could prove to be the service, or the configuration file or the key file
     is wrong
"""
_OVERVIEW = """\
trove-ceph-storage does what needs a Ceph key, for Trove. What takes long is a job; these commands
ask any copy of the service about the jobs of all of them, over the message bus.
"""
_EXAMPLES = """\
examples:
  Does it answer, and is anything wrong? For a monitoring system:
    trove-ceph-manage storage status --format json

  See what runs, how far it is and how long it will take; call one off:
    trove-ceph-manage storage jobs
    trove-ceph-manage storage cancel OPERATION-ID

  List the images that trove_ceph has made in a pool, and that Cinder does not know:
    trove-ceph-manage storage images vault --prefix trove_ceph.

  Part a clone from its parent, so that the parent can be deleted; may be broken off and run again:
    trove-ceph-manage storage flatten volumes/volume-3d1c

  After a failover, when the failed host was switched off and on again: see which clients are fenced
  off an image, and let their addresses in again before the blocklist does so by itself, in a week:
    trove-ceph-manage storage unfence volumes/volume-3d1c
    trove-ceph-manage storage unfence volumes/volume-3d1c --yes-clients-are-dead

  Make the keys that service and callers sign their messages with, and replace them once a year
  ("trove-ceph-manage storage keys --help" says in which order):
    trove-ceph-manage storage keys create
    trove-ceph-manage storage keys rotate

A job that was canceled, has failed or was interrupted is carried on with, from where it was, when
the operation in Trove to which it belongs is run again.

"""


def add_commands(areas: Any) -> None:
    """Add ``storage`` and its verbs to the areas of ``trove-ceph-manage``."""
    area = CommandGroup(
        areas,
        'storage',
        'look at the storage service and its jobs',
        overview=_OVERVIEW,
        examples=_EXAMPLES,
        exit_codes=_EXIT_CODES,
    )
    status = area.add_verb(
        'status', _status, 'say whether it answers and all is well; for monitoring'
    )
    jobs = area.add_verb('jobs', _jobs, 'list all jobs, the latest first')
    cancel = area.add_verb('cancel', _cancel, 'have a job end at its next piece')
    cancel.add_argument('operation_id', metavar='OPERATION-ID', help='as "jobs" shows it')
    images = area.add_verb('images', _images, 'list the images of a pool in order of their names')
    images.add_argument('pool', metavar='POOL', help='one of those that the service works on')
    images.add_argument(
        '--prefix', default='', metavar='TEXT', help='only those whose names begin so'
    )
    flatten = area.add_verb(
        'flatten', _flatten, 'copy into a clone all that it reads from its parent, and part them'
    )
    flatten.add_argument('image', type=_image, metavar='POOL/IMAGE', help='it may be attached')
    flatten.add_argument(
        '--wait',
        type=float,
        default=math.inf,
        metavar='SEC',
        help='for its end; the work goes on afterwards, as it does after Ctrl-C; 0 only begins it '
        '(default: as long as it takes)',
    )
    unfence = area.add_verb(
        'unfence', _unfence, 'let clients in again that were fenced off images; or list them'
    )
    unfence.add_argument('images', type=_image, nargs='+', metavar='POOL/IMAGE')
    unfence.add_argument(
        '--yes-clients-are-dead',
        action='store_true',
        help='agree that their processes have ended: one that was only cut off or paused would go '
        'on writing where it stopped, beside the new server, and destroy the data',
    )
    storage_keys.add_verb(area)
    storage_image.add_verb(area, DEFAULT_CONFIG)
    for verb in (status, jobs, cancel, images, flatten, unfence):
        add_format(verb)
        add_option(
            verb,
            '--config-file',
            STORAGE_CONF,
            DEFAULT_CONFIG,
            'where [trove_ceph_storage] transport_url and key_file are',
        )
        verb.add_argument(
            '--timeout', type=float, default=30, metavar='SEC', help='default: %(default)s'
        )


def _status(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    found, silent = _connect(arguments).survey_jobs()
    took_ms = round((time.monotonic() - began) * 1000)
    counts = collections.Counter(str(one.state) for one in found)
    bad = [one for one in found if one.state in (JobState.FAILED, JobState.INTERRUPTED)]
    status = 'trouble' if bad or silent else 'ok'
    if arguments.format == 'json':
        content = {
            'status': status,
            'answer_ms': took_ms,
            'jobs': {str(state): counts[state] for state in JobState},
            'bad': [as_document(one) for one in bad],
            'silent_pools': silent,
        }
        print(json.dumps(content, indent=2))
    else:
        jobs = ', '.join(f'{count} {state}' for state, count in sorted(counts.items())) or 'none'
        print(f'{status}: answered in {took_ms} ms; jobs: {jobs}')
        for one in bad:
            print(f'  {one} {one.state}: {one.message or f"was on {one.holder}"}')
        for pool in silent:
            print(f'  {_silent_text(pool)}')
    return TROUBLE if bad or silent else OK


def _jobs(arguments: argparse.Namespace) -> int:
    found, silent = _connect(arguments).survey_jobs()
    if arguments.format == 'json':
        print(json.dumps([as_document(one) for one in found], indent=2))
    elif found:
        print(table_text(found))
    else:
        print('No jobs.')
    for pool in silent:
        print(_silent_text(pool), file=sys.stderr)
    return TROUBLE if silent else OK


def _silent_text(pool: str) -> str:
    return f'pool {pool}: does not answer'


def _cancel(arguments: argparse.Namespace) -> int:
    try:
        found = _connect(arguments).cancel(arguments.operation_id)
    except exceptions.NotFoundError as error:
        print(error)
        return TROUBLE
    if arguments.format == 'json':
        print(json.dumps(as_document(found), indent=2))
    elif found.state.is_active:
        print(f'{found}: was {found.state}, will end at its next piece')
    else:
        print(f'{found}: {found.state}')
    return OK


def _images(arguments: argparse.Namespace) -> int:
    # Shown as they come, as there may be very many of them.
    listed = _connect(arguments).list_images(arguments.pool, arguments.prefix)
    if arguments.format == 'json':
        content = [{'name': one.image.name, 'id': one.image_id} for one in listed]
        print(json.dumps(content, indent=2))
    else:
        for one in listed:
            print(f'{one.image.name} (id {one.image_id})')
    return OK


def _flatten(arguments: argparse.Namespace) -> int:
    storage, image, progress = _connect(arguments), arguments.image, _Progress()
    status, text = OK, f'{image}: parted from its parent'
    try:
        facts = storage.describe(image)
        if facts.parent is None:
            text = f'{image}: has no parent'
        else:
            # Names get used again, ids of images do not: the same id is the same work.
            operation_id = f'flatten:{facts.image_id}'
            storage.run(operation_id, tasks.FlattenTask(image), arguments.wait, progress.note)
    except exceptions.StillRunningError as error:
        status, text = TROUBLE if arguments.wait else OK, f'{error}; it goes on, see "jobs"'
    except exceptions.CephUnreachableError:
        raise
    except exceptions.StorageError as error:
        status, text = TROUBLE, str(error)
    if arguments.format == 'json':
        content = {'text': text, 'job': as_document(progress.last) if progress.last else None}
        print(json.dumps(content, indent=2))
    else:
        print(text)
    return status


class _Progress:
    """Shows how far a job is, where somebody may be watching; keeps out of the output."""

    def __init__(self) -> None:
        self.last: tasks.Job | None = None
        self._shown = ''

    def note(self, found: tasks.Job) -> None:
        self.last = found
        done = f'{found.done_bytes / found.total_bytes:.0%}' if found.total_bytes else ''
        text = ' '.join(filter(None, [found.state, found.phase, done]))
        if text != self._shown:
            left = f'; {found.left_sec:.0f} s left' if found.left_sec else ''
            print(text + left, file=sys.stderr, flush=True)
            self._shown = text


def _unfence(arguments: argparse.Namespace) -> int:
    storage = _connect(arguments)
    is_agreed = arguments.yes_clients_are_dead
    rows: list[dict[str, Any]] = []
    for image in arguments.images:
        row = {'image': str(image), 'clients': [], 'unfenced': False, 'error': None}
        rows.append(row)
        try:
            row['clients'] = sorted(fencing.recorded(storage.describe(image)))
            if row['clients'] and is_agreed:
                storage.unfence(image)
                row['unfenced'] = True
        except exceptions.StorageError as error:
            # The others may be all right.
            row['error'] = str(error)
    if arguments.format == 'json':
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            print(_unfenced_text(row))
    if any(row['error'] for row in rows):
        return TROUBLE
    if is_agreed or not any(row['clients'] for row in rows):
        return OK
    print(
        'Nothing was changed. If the processes of all these clients have ended, add '
        '--yes-clients-are-dead.',
        file=sys.stderr,
    )
    return DISAGREED


def _unfenced_text(row: dict[str, Any]) -> str:
    if row['error']:
        return row['error']
    if not row['clients']:
        return f'{row["image"]}: no client is fenced'
    return (
        f'{row["image"]}: {"unfenced" if row["unfenced"] else "fenced"} {" ".join(row["clients"])}'
    )


def _image(text: str) -> image_types.ImageRef:
    pool, slash, name = text.partition('/')
    if not (pool and slash and name):
        raise argparse.ArgumentTypeError(f'{text!r} is not POOL/IMAGE')
    return image_types.ImageRef(pool, name)


def _connect(arguments: argparse.Namespace) -> 'rpcapi.StorageAPI':
    # Only here: it loads half of OpenStack, and eventlet, which tells everybody that it is old.
    warnings.filterwarnings('ignore', message=r'\s*Eventlet is deprecated')
    from trove_ceph.storage_service import rpcapi

    # oslo.messaging has options that it registers with this one only.
    conf = cfg.CONF
    storage_conf.register_transport(conf)
    try:
        conf([], default_config_files=[arguments.config_file])
    except cfg.Error as error:
        raise exceptions.InvalidRequestError(f'{arguments.config_file}: {error}') from error
    return rpcapi.StorageAPI(rpcapi.connect(conf), arguments.timeout)


def as_document(found: tasks.Job) -> dict[str, Any]:
    """Return a job as JSON has it."""
    return {
        'operation_id': found.operation_id,
        'work': str(found.work),
        'state': str(found.state),
        'phase': found.phase,
        'done_bytes': found.done_bytes,
        'total_bytes': found.total_bytes,
        'bytes_per_sec': found.bytes_per_sec,
        'left_sec': found.left_sec,
        'error': found.error,
        'message': found.message,
        'holder': found.holder,
        'attempt': found.attempt,
        'started_at': found.started_at.isoformat(),
        'updated_at': found.updated_at.isoformat(),
    }


def table_text(jobs: Sequence[tasks.Job]) -> str:
    """Return jobs as a table, with what went wrong below."""
    table = prettytable.PrettyTable(
        ['Operation', 'Work', 'State', 'Done', 'MiB/s', 'Left', 'Attempt', 'Service']
    )
    table.align = 'l'
    for found in jobs:
        is_moving = found.state is JobState.RUNNING and found.total_bytes
        table.add_row(
            [
                found.operation_id,
                found.work,
                f'{found.state}, {found.phase}' if found.state.is_active else found.state,
                f'{found.done_bytes / found.total_bytes:.0%}' if found.total_bytes else '',
                f'{found.bytes_per_sec / units.Mi:.1f}' if is_moving else '',
                f'{found.left_sec:.0f} s' if is_moving and found.left_sec is not None else '',
                found.attempt,
                found.holder,
            ]
        )
    errors = [f'{one.operation_id}: {one.error}: {one.message}' for one in jobs if one.error]
    return '\n'.join([table.get_string(), *errors])
