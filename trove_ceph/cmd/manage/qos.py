# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage qos``: plan, apply and check the limits of images."""

import argparse
import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from trove_ceph import exceptions
from trove_ceph.cmd.manage import base, columns, options
from trove_ceph.storage import image_types
from trove_ceph.tiers import cinder, tiers_file
from trove_ceph.tiers.qos import planning, reconciler

_EXIT_CODES = """\
exit status:
  0  all volumes have the limits of their tiers, or were given them
  1  some have other limits (check), or could not be examined or changed
  2  the command line or the tiers file is wrong; nothing was changed
  3  Ceph or Cinder did not answer
"""
_EXAMPLES = """\
examples:
  Show which volumes have other limits than their tiers promise, and change those limits:
    trove-ceph-manage qos plan
    trove-ceph-manage qos apply

  For a monitoring system:
    trove-ceph-manage qos check -f json

Ceph is asked with librbd as an administrator (--ceph-conf, --ceph-user), OpenStack as an
administrator with OS_* variables or clouds.yaml.
"""


class Group(base.Group):
    """Limit volumes to the IOPS and the throughput of their tiers.

    Tiers with "qos: image" promise each volume IOPS by its size, and throughput. librbd enforces
    both with limits of the volume's image. trove-ceph-storage sets these limits right after a
    resize or a retype; these commands set and check them by hand.
    """

    examples = _EXAMPLES
    exit_codes = _EXIT_CODES


class _Limits(columns.Structure):
    """The limits of an image."""

    def __init__(self, limits: image_types.Qos):
        super().__init__(dataclasses.asdict(limits))
        self._text = planning.text(limits)

    def human_readable(self) -> str:
        return self._text


class _LimitsCommand(base.Command):
    exit_codes = _EXIT_CODES

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        options.add_option(
            parser, '--file', options.TIERS_FILE, tiers_file.DEFAULT_PATH, 'the tiers file'
        )
        options.add_ceph(parser)
        return parser


class _LimitsLister(_LimitsCommand, base.Lister):
    #: Completes "<count> ..." in the summary.
    outcome: str

    def show_volumes(self, report: reconciler.Report) -> tuple[Sequence[str], Sequence[Any]]:
        """Return a row for each volume whose limits differ or could not be examined."""
        rows = [
            (change.volume.id, str(change.image), columns.of(change.tier), change.volume.size_gib)
            + (_Limits(change.before), _Limits(change.after), columns.of(None))
            for change in report.changes
        ]
        nothing = [columns.of(None)] * 5
        rows += [(volume, *nothing, error) for volume, error in report.failures.items()]
        self.note(
            f'Of {report.volumes} volumes, {len(report.changes)} {self.outcome}, '
            f'{len(report.failures)} failed.'
        )
        return ('volume', 'image', 'tier', 'size_gib', 'from', 'to', 'error'), rows


class Plan(_LimitsLister):
    """Show which limits would change; change nothing."""

    outcome = 'would change'

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return what differs."""
        return self.show_volumes(_reconciler(parsed_args).plan())


class Apply(_LimitsLister):
    """Change the limits that differ, and list them."""

    outcome = 'changed'

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return what was changed."""
        report = _reconciler(parsed_args).sweep()
        if report.failures:
            self.exit_status = base.ExitStatus.DIFFERS
        return self.show_volumes(report)


class Check(_LimitsCommand, base.Report):
    """Say whether all volumes have the limits of their tiers; for monitoring."""

    def make_report(self, parsed_args: argparse.Namespace) -> tuple[Mapping[str, Any], str]:
        """Return all differences, and a line that names the first of them."""
        report = _reconciler(parsed_args).plan()
        found = [*report.failures.values(), *map(str, report.changes)]
        if not found:
            text = f'ok: {report.volumes} volumes have the limits of their tiers'
            return {'status': 'ok', **report.as_document()}, text
        self.exit_status = base.ExitStatus.DIFFERS
        what = textwrap.shorten('; '.join(found), 300, placeholder=' …')
        text = f'drift: {len(found)} of {report.volumes} volumes: {what}'
        return {'status': 'drift', **report.as_document()}, text


def _reconciler(parsed_args: argparse.Namespace) -> reconciler.Reconciler:
    content = tiers_file.load(parsed_args.file)
    storage = _storage(parsed_args)
    return reconciler.Reconciler(lambda: content, cinder.Cinder.of_environment(), storage)


def _storage(parsed_args: argparse.Namespace) -> Any:
    # Ceph's libraries are the distribution's, and not on every host that manages tiers.
    try:
        from trove_ceph.storage.ceph import backend, connection
    except ModuleNotFoundError as error:
        raise exceptions.StorageError(
            f"Ceph's Python module {error.name} is missing: install python3-rbd and python3-rados, "
            'for the same Python'
        ) from error
    user = f'client.{parsed_args.ceph_user}'
    return backend.CephBackend(connection.Connection(parsed_args.ceph_conf, user))
