# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage storage``: the storage service and its jobs."""

import argparse
import collections
import datetime
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oslo_config import cfg

from trove_ceph import exceptions, times
from trove_ceph.cmd.manage import base, columns, options
from trove_ceph.conf import storage as storage_conf
from trove_ceph.osc import columns as osc_columns
from trove_ceph.storage import tasks
from trove_ceph.storage.tasks import JobState

if TYPE_CHECKING:
    from trove_ceph.storage_service import rpcapi

_DEFAULT_CONFIG = '/etc/trove-ceph/trove-ceph-storage.conf'

#: The fields of a job that the commands show.
JOB_FIELDS = (
    'operation_id',
    'work',
    'state',
    'phase',
    'done_bytes',
    'total_bytes',
    'bytes_per_sec',
    'left_sec',
    'error',
    'message',
    'holder',
    'attempt',
    'started_at',
    'updated_at',
)

EXIT_CODES = """\
exit status:
  0  the service answers, and no job has failed or is interrupted (status); it is done (all others)
  1  a pool does not answer (status, jobs), a job has failed or is interrupted (status), there is no
     such job (cancel), the image was not flattened, or not within --wait (flatten), an image was
     not unfenced (unfence), or one with copies stays (remove-copies)
  2  the command line is wrong, or the consequence was not accepted (unfence, remove-copies);
     nothing was changed
  3  no service answered that has the keys, or the configuration file or the key file is wrong
"""
_EXAMPLES = """\
examples:
  Ask whether the service answers and whether its jobs are well; for a monitoring system:
    trove-ceph-manage storage status -f json

  List the jobs with their progress; cancel one:
    trove-ceph-manage storage jobs
    trove-ceph-manage storage cancel OPERATION-ID

  List the images that trove_ceph has made in a pool, and that Cinder does not manage:
    trove-ceph-manage storage images vault --prefix trove_ceph.

  Flatten a clone, so that its parent can be deleted; after an interruption, run it again:
    trove-ceph-manage storage flatten volumes/volume-3d1c

  After a failover, when the failed host was switched off and on again: list the clients that are
  fenced off an image, and remove them from the blocklist before they expire there after a week:
    trove-ceph-manage storage unfence volumes/volume-3d1c
    trove-ceph-manage storage unfence volumes/volume-3d1c --yes-clients-are-dead

  When trove_ceph is removed for good, and its tables are: list the copies in a vault, delete them:
    trove-ceph-manage storage remove-copies vault
    trove-ceph-manage storage remove-copies vault --yes-delete-copies

  Make the keys that the service and its callers sign their messages with, and replace them once a
  year ("trove-ceph-manage storage keys --help" explains the order):
    trove-ceph-manage storage keys create
    trove-ceph-manage storage keys rotate

A job that was canceled, has failed or was interrupted continues from where it was when the
operation in Trove to which it belongs is run again.
"""


class Group(base.Group):
    """Show and control the storage service, its jobs and its images.

    trove-ceph-storage does for Trove what needs a Ceph key. Work that takes long is a job. These
    commands ask any copy of the service, over the message bus, about the jobs of all copies.
    """

    examples = _EXAMPLES
    exit_codes = EXIT_CODES


class StorageCommand(base.Command):
    """A command that asks the storage service."""

    exit_codes = EXIT_CODES

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser, with the options for the message bus."""
        parser = super().get_parser(prog_name)
        options.add_option(
            parser,
            '--config-file',
            options.STORAGE_CONF,
            _DEFAULT_CONFIG,
            'the file with [trove_ceph_storage] transport_url and key_file',
        )
        parser.add_argument(
            '--timeout',
            type=float,
            default=30,
            metavar='SEC',
            help='how long to wait for an answer (default: %(default)s)',
        )
        return parser


class Status(StorageCommand, base.Report):
    """Say whether the service answers and its jobs are well; for monitoring."""

    def make_report(self, parsed_args: argparse.Namespace) -> tuple[Mapping[str, Any], str]:
        """Return the jobs by their states, with those that need attention."""
        began = time.monotonic()
        service = connect(parsed_args)
        found, silent = service.survey_jobs()
        took_ms = round((time.monotonic() - began) * 1000)
        version = service.version()
        counts = collections.Counter(str(one.state) for one in found)
        bad = [one for one in found if one.state in (JobState.FAILED, JobState.INTERRUPTED)]
        if bad or silent:
            self.exit_status = base.ExitStatus.DIFFERS
        status = 'trouble' if bad or silent else 'ok'
        jobs = ', '.join(f'{count} {state}' for state, count in sorted(counts.items())) or 'none'
        lines = [f'{status}: answered in {took_ms} ms, RPC version {version}; jobs: {jobs}']
        lines += [f'  {one} {one.state}: {one.message or f"was on {one.holder}"}' for one in bad]
        lines += [f'  {_silent_text(pool)}' for pool in silent]
        document = {
            'status': status,
            'answer_ms': took_ms,
            'rpc_version': version,
            'jobs': {str(state): counts[state] for state in JobState},
            'bad': [as_document(one) for one in bad],
            'silent_pools': silent,
        }
        return document, '\n'.join(lines)


class Jobs(StorageCommand, base.Lister):
    """List all jobs, the latest first."""

    table_columns = tuple(
        name for name in JOB_FIELDS if name not in ('error', 'started_at', 'updated_at')
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the jobs of the pools that answer."""
        found, silent = connect(parsed_args).survey_jobs()
        for pool in silent:
            self.note(_silent_text(pool))
            self.exit_status = base.ExitStatus.DIFFERS
        if not found:
            self.note('There are no jobs.')
        return JOB_FIELDS, [job_row(one) for one in found]


class Cancel(StorageCommand, base.ShowOne):
    """End a job after the piece of work that it is doing."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        parser.add_argument('operation_id', metavar='OPERATION-ID', help='as "jobs" lists it')
        return parser

    def status_of(self, error: exceptions.TroveCephError) -> base.ExitStatus:
        """Return the exit status for an error; a job that does not exist is no outage."""
        if isinstance(error, exceptions.NotFoundError):
            return base.ExitStatus.DIFFERS
        return super().status_of(error)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the job as it was when it was canceled."""
        found = connect(parsed_args).cancel(parsed_args.operation_id)
        if found.state.is_active:
            self.note(f'{found}: ends after the piece of work that it is doing')
        return JOB_FIELDS, job_row(found)


def connect(parsed_args: argparse.Namespace) -> 'rpcapi.StorageAPI':
    """Return a client of the storage service.

    :raises InvalidConfigurationError: the configuration file cannot be used
    """
    # Imported here: it loads much of OpenStack, and eventlet warns that it is deprecated.
    warnings.filterwarnings('ignore', message=r'\s*Eventlet is deprecated')
    from trove_ceph.storage_service import rpcapi

    # oslo.messaging has options that it registers with this one only.
    conf = cfg.CONF
    storage_conf.register_transport(conf)
    try:
        conf([], default_config_files=[parsed_args.config_file])
    except cfg.Error as error:
        raise exceptions.InvalidConfigurationError(f'{parsed_args.config_file}: {error}') from error
    return rpcapi.StorageAPI(rpcapi.connect(conf), parsed_args.timeout)


def as_document(found: tasks.Job) -> dict[str, Any]:
    """Return a job as JSON has it."""
    return {name: _plain(getattr(found, name)) for name in JOB_FIELDS}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return times.utc_text(value)
    return value if value is None or isinstance(value, (int, float)) else str(value)


def job_row(found: tasks.Job) -> tuple[Any, ...]:
    """Return a job as a row of a table."""
    return tuple(
        osc_columns.of(name, value) if name.endswith(('_bytes', '_sec')) else columns.of(value)
        for name, value in as_document(found).items()
    )


def _silent_text(pool: str) -> str:
    return f'pool {pool}: does not answer'
