# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage qos``: plan, apply and check."""

import argparse
import json
import textwrap
from typing import Any

import prettytable

from trove_ceph import exceptions
from trove_ceph.cmd.manage.cli_base import (
    TIERS_FILE,
    CommandGroup,
    add_ceph,
    add_format,
    add_option,
)
from trove_ceph.cmd.manage.tiers import DRIFT, OK
from trove_ceph.tiers import cinder, tiers_file
from trove_ceph.tiers.qos import planning, reconciler

_EXIT_CODES = """\
exit status:
  0  all limits are as promised, or were made so
  1  some differ (check), or could not be looked at or changed
  2  the command line or the tiers file is wrong; nothing was changed
  3  Ceph or Cinder could not be asked
"""
_OVERVIEW = """\
Tiers with "qos: image" promise each volume IOPS by its size, and throughput. librbd holds a volume
to both by limits of its image. trove-ceph-storage keeps them, at once after a resize or a retype;
these commands do it by hand, and look whether it is done.
"""
_EXAMPLES = """\
examples:
  See which volumes have other limits than they are promised, and change those:
    trove-ceph-manage qos plan
    trove-ceph-manage qos apply

  For a monitoring system:
    trove-ceph-manage qos check --format json

Ceph is asked with librbd as an administrator (--ceph-conf, --ceph-user), OpenStack as an
administrator with OS_* variables or clouds.yaml.

"""


def add_commands(areas: Any) -> None:
    """Add ``qos`` and its verbs to the areas of ``trove-ceph-manage``."""
    area = CommandGroup(
        areas,
        'qos',
        'hold volumes to the IOPS and the throughput of their tiers',
        overview=_OVERVIEW,
        examples=_EXAMPLES,
        exit_codes=_EXIT_CODES,
    )
    for name, function, help_text in (
        ('plan', _plan, 'show which limits would change; changes nothing'),
        ('apply', _apply, 'change them, and print what was done'),
        ('check', _check, 'say whether all limits are as promised; for monitoring'),
    ):
        verb = area.add_verb(name, function, help_text)
        add_option(verb, '--file', TIERS_FILE, tiers_file.DEFAULT_PATH, 'the tiers file')
        add_format(verb)
        add_ceph(verb)


def _plan(arguments: argparse.Namespace) -> int:
    report = _keeper(arguments).plan()
    _print(arguments, report, 'would change')
    return OK


def _apply(arguments: argparse.Namespace) -> int:
    report = _keeper(arguments).sweep()
    _print(arguments, report, 'changed')
    return DRIFT if report.failures else OK


def _check(arguments: argparse.Namespace) -> int:
    report = _keeper(arguments).plan()
    found = [*report.failures.values(), *map(str, report.changes)]
    status = DRIFT if found else OK
    word = 'drift' if found else 'ok'
    if arguments.format == 'json':
        print(json.dumps({'status': word, **report.as_document()}, indent=2))
    elif found:
        text = textwrap.shorten('; '.join(found), 300, placeholder=' …')
        print(f'{word}: {len(found)} of {report.volumes} volumes: {text}')
    else:
        print(f'{word}: the limits of {report.volumes} volumes are as promised')
    return status


def _print(arguments: argparse.Namespace, report: reconciler.Report, what: str) -> None:
    if arguments.format == 'json':
        print(json.dumps(report.as_document(), indent=2))
        return
    if report.changes:
        print(table_text(report))
    for failure in report.failures.values():
        print(f'problem: {failure}')
    print(
        f'Of {report.volumes} volumes {len(report.changes)} {what}, '
        f'{len(report.failures)} could not be dealt with.'
    )


def table_text(report: reconciler.Report) -> str:
    """Return the changes as a table."""
    table = prettytable.PrettyTable(['volume', 'image', 'tier', 'GiB', 'limits', 'promised'])
    table.set_style(prettytable.TableStyle.PLAIN_COLUMNS)
    table.align = 'l'
    table.right_padding_width = 2
    for change in report.changes:
        table.add_row(
            [change.volume.id, change.image, change.tier or '-', change.volume.size_gib]
            + [planning.text(change.before), planning.text(change.after)]
        )
    return '\n'.join(line.rstrip() for line in table.get_string().splitlines())


def _keeper(arguments: argparse.Namespace) -> reconciler.Reconciler:
    content = tiers_file.load(arguments.file)
    storage = _storage(arguments)
    return reconciler.Reconciler(lambda: content, cinder.Cinder.of_environment(), storage)


def _storage(arguments: argparse.Namespace) -> Any:
    # Ceph's libraries are the distribution's, and not on every host that manages tiers.
    try:
        from trove_ceph.storage.ceph import backend, connection
    except ModuleNotFoundError as error:
        raise exceptions.StorageError(
            f"Ceph's Python module {error.name} is missing: install python3-rbd and python3-rados, "
            'for the same Python'
        ) from error
    user = f'client.{arguments.ceph_user}'
    return backend.CephBackend(connection.Connection(arguments.ceph_conf, user))
