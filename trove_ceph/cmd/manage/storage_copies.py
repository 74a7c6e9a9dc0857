# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage storage remove-copies``: empty the vault when trove_ceph is removed."""

import argparse
import collections
import dataclasses
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trove_ceph import exceptions
from trove_ceph.cmd.manage import base, database, options, storage
from trove_ceph.storage import image_types, names, tasks

if TYPE_CHECKING:
    from trove_ceph.storage_service import rpcapi

_VAULT = 'vault'
_DELETED = 'deleted'


class RemoveCopies(storage.StorageCommand, base.Lister):
    """Delete all copies of backups in pools, once trove_ceph's tables are removed.

    Without --yes-delete-copies it lists the vault images and changes nothing. It is refused while
    a backup is recorded whose copy is there: "gc" and "openstack database backup delete" delete
    single ones. An image from which clones read, such as restored instances, stays. So does one
    whose instance or backup this Trove never had, since another Trove may share the pool.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        parser.add_argument('pools', nargs='+', metavar='POOL', help='the pool of a vault')
        parser.add_argument(
            '--yes-delete-copies',
            action='store_true',
            help='delete them; a backup whose snapshot is gone cannot be restored any more',
        )
        parser.add_argument(
            '--include-unknown',
            action='store_true',
            help='also delete images whose instance or backup this Trove never had',
        )
        parser.add_argument(
            '--trove-conf',
            default=options.trove_conf()[0],
            metavar='PATH',
            help='the file with [database] connection of Trove '
            f'(default: the first of ${options.TROVE_CONF}, else {options.DEFAULT_TROVE_CONF})',
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the vault images with what became of each."""
        recorded, known = _read_database(parsed_args.trove_conf, parsed_args.pools)
        service = storage.connect(parsed_args)
        found = [one for pool in parsed_args.pools for one in _find_images(service, pool)]
        is_agreed = parsed_args.yes_delete_copies and not recorded
        outcomes = [
            _outcome(service, one, is_agreed, None if parsed_args.include_unknown else known)
            for one in found
        ]
        if recorded:
            pools = ', '.join(f'{count} in {pool}' for pool, count in sorted(recorded.items()))
            self.failure = exceptions.ConsequencesNotAcceptedError(
                f'backups with copies are recorded ({pools}); nothing was changed: delete them, or '
                'remove the tables with "trove-ceph-manage db downgrade none" if trove_ceph is to '
                'be removed'
            )
        elif found and not is_agreed:
            self.failure = exceptions.ConsequencesNotAcceptedError(
                'nothing was changed: restore what is needed, and repeat this with '
                '--yes-delete-copies to delete the images above'
            )
        elif any(outcome != _DELETED for outcome in outcomes):
            self.exit_status = base.ExitStatus.DIFFERS
        if not found:
            self.note('There are no copies.')
        return ('image', 'copies', 'outcome'), [
            (str(facts.image), len(facts.snapshot_names), outcome)
            for facts, outcome in zip(found, outcomes, strict=True)
        ]


def _read_database(
    config_file: str, pools: Sequence[str]
) -> tuple[Mapping[str, int], frozenset[str]]:
    """Return how many backups are recorded with copies in each pool, and the ids of owners.

    An owner is an instance or a backup that Trove has or had.
    """
    recorded: list[str | None] = []
    with database.connect(config_file) as facade:
        import sqlalchemy as sa

        from trove_ceph.db import backups, migration

        engine = facade.writer.get_engine()
        if migration.find_version(engine) is not None:
            recorded = [one.vault_pool for one in backups.BackupStore(facade).all()]
        with engine.connect() as connection:
            known = frozenset(
                found
                for name in ('instances', 'backups')
                for found in connection.scalars(sa.select(sa.table(name, sa.column('id')).c.id))
            )
    counts = collections.Counter(pool for pool in recorded if pool is not None and pool in pools)
    return counts, known


def _find_images(service: 'rpcapi.StorageAPI', pool: str) -> Iterator[image_types.ImageFacts]:
    """List the vault images of a pool."""
    for listed in service.list_images(pool, f'trove_ceph.{_VAULT}.'):
        name = names.parse(listed.image.name)
        if name is None or name.kind != _VAULT:
            continue
        try:
            yield service.describe(listed.image)
        except exceptions.NotFoundError:
            continue


def _outcome(
    service: 'rpcapi.StorageAPI',
    facts: image_types.ImageFacts,
    is_agreed: bool,
    known: Container[str] | None,
) -> str:
    """Delete a vault image that nothing needs, if that is agreed; return what became of it.

    :param known: the ids of owners whose images are deleted; None: all
    """
    name = names.parse(facts.image.name)
    assert name is not None
    if known is not None and name.id not in known:
        return f'stays: this Trove knows no instance or backup {name.id}'
    # Its own snapshots are the copies.
    if obstacles := dataclasses.replace(facts, snapshots=()).obstacles():
        return f'stays: has {obstacles}'
    if not is_agreed:
        return 'would be deleted'
    try:
        trashed = service.trash(facts.image, facts.image_id)
        work = tasks.PurgeTask(trashed.pool, trashed.image_id)
        service.run(f'purge.{trashed.image_id}', work, math.inf)
    except exceptions.StorageError as error:
        # The other images are deleted all the same.
        return f'stays: {error}'
    return _DELETED
