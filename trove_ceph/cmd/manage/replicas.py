# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage replicas``: list, show, re-provision and flatten replicas."""

import argparse
import contextlib
import dataclasses
import datetime
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from trove_ceph import exceptions
from trove_ceph.cmd.manage import base, columns, database

if TYPE_CHECKING:
    from trove_ceph.cinder import client
    from trove_ceph.db import replicas
    from trove_ceph.db.replica_record import ReplicaRecord

_EXIT_CODES = """\
exit status:
  0  the command succeeded
  1  a replica has no record (show, reprovision, flatten), or cannot be re-provisioned or flattened
     now (reprovision, flatten)
  2  the command line is wrong
  3  the database or Cinder did not answer, or the configuration file is wrong
"""
_EXAMPLES = """\
examples:
  List all replicas; those that do not replicate; those that need an operator; all in JSON:
    trove-ceph-manage replicas list
    trove-ceph-manage replicas list --broken
    trove-ceph-manage replicas list --blocked
    trove-ceph-manage replicas list -f json

  Show all that is known of one:
    trove-ceph-manage replicas show INSTANCE

  After a pool with one copy has lost an OSD, give all replicas in it fresh clones of their sources,
  also those that seem sound: each has lost a part of its data:
    trove-ceph-manage replicas list --volume-type nvme-replica
    trove-ceph-manage replicas reprovision --volume-type nvme-replica --reason "a disk was lost"

  Make replicas independent of the image of their source:
    trove-ceph-manage replicas flatten INSTANCE
"""
_STARTS = 'A taskmanager begins within a minute.'
_AGES = {'observed_age_sec': 'observed_at', 'clone_age_sec': 'cloned_at'}


class Group(base.Group):
    """List, show, re-provision and flatten replicas.

    A replica that is re-provisioned gets a fresh clone of its source, and keeps its id and its
    addresses. These commands read and write trove_ceph's tables, and "flatten" a mark in Cinder;
    the taskmanagers watch the replicas, and do the work. A replica with another guest agent, or on
    no storage tier, is in no table.
    """

    examples = _EXAMPLES
    exit_codes = _EXIT_CODES


class _ReplicasCommand(base.Command):
    exit_codes = _EXIT_CODES

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        database.add_option(parser)
        return parser

    def status_of(self, error: exceptions.TroveCephError) -> base.ExitStatus:
        """Return the exit status for an error."""
        if isinstance(error, (exceptions.RecordError, exceptions.ReprovisioningRefusedError)):
            return base.ExitStatus.DIFFERS
        return super().status_of(error)

    def request_each(
        self, instance_ids: Sequence[str], request: 'Callable[[str], ReplicaRecord]'
    ) -> 'Sequence[ReplicaRecord]':
        """Make a request for each replica; return the replicas of those that are not refused."""
        requested = []
        for instance_id in instance_ids:
            try:
                requested.append(request(instance_id))
            except (exceptions.RecordError, exceptions.ReprovisioningRefusedError) as error:
                self.app.LOG.error('%s', error)
                self.exit_status = base.ExitStatus.DIFFERS
        return requested

    @staticmethod
    def add_volume_type(parser: argparse._ActionsContainer, text: str) -> None:
        """Add the option that chooses replicas by the volume types of their volumes."""
        parser.add_argument('--volume-type', metavar='TYPE', help=text)


class List(_ReplicasCommand, base.Lister):
    """List replicas, the oldest first.

    Lag, space and errors are as of the last look of a taskmanager; observed_age_sec is the time
    since then, clone_age_sec that since the data were cloned.
    """

    table_columns = (
        *('instance_id', 'source_id', 'state', 'is_replicating', 'lag_sec', 'lag_transactions'),
        *('own_bytes', 'clone_depth', 'clone_age_sec', 'observed_age_sec', 'replication_error'),
        'error',
    )

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--source', metavar='INSTANCE', help='only those of the source with this id'
        )
        parser.add_argument('--project', metavar='PROJECT', help='only those of this project')
        parser.add_argument(
            '--reprovisioning',
            action='store_true',
            help='only those that are being re-provisioned, or wait for it',
        )
        parser.add_argument(
            '--broken',
            action='store_true',
            help='only those that do not replicate, and are not being re-provisioned',
        )
        parser.add_argument(
            '--blocked',
            action='store_true',
            help='only those whose volumes cannot be exchanged until you repair what error names',
        )
        self.add_volume_type(
            parser,
            'only those whose volumes have this volume type; OpenStack is asked as an '
            'administrator with OS_* variables or clouds.yaml',
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return a row for each replica."""
        with _store(parsed_args) as store:
            found = store.list(
                project_id=parsed_args.project,
                source_id=parsed_args.source,
                is_reprovisioning=parsed_args.reprovisioning or None,
            )
            now = store.now()
        if parsed_args.broken:
            found = [one for one in found if one.is_broken]
        if parsed_args.blocked:
            found = [one for one in found if one.state.needs_operator]
        if parsed_args.volume_type is not None:
            found = _of_volume_type(found, parsed_args.volume_type)
        return _names(), [_values(one, now) for one in found]


class Show(_ReplicasCommand, base.ShowOne):
    """Show a replica: its state, how it follows, its volumes, its times, its last error."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('instance', metavar='INSTANCE', help='id of the replica')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return its fields."""
        with _store(parsed_args) as store:
            return _names(), _values(_find(store, parsed_args.instance), store.now())


class Reprovision(_ReplicasCommand, base.Lister):
    """Request fresh clones for replicas, and list those.

    The requests are independent: if one is refused, the others are made. The tenants read the
    reason.

    After a pool with one copy has lost an OSD, re-provision all replicas in it with --volume-type.
    "list --broken" does not show all that have lost data: an object that is lost reads as what the
    source had there long ago, or as zeros.
    """

    table_columns = ('instance_id', 'source_id', 'state', 'reason')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument(
            'instances', nargs='*', default=[], metavar='INSTANCE', help='id of a replica'
        )
        self.add_volume_type(
            which,
            'all replicas whose volumes have this volume type, but those that are being '
            're-provisioned; OpenStack is asked as an administrator with OS_* variables or '
            'clouds.yaml',
        )
        parser.add_argument(
            '--reason', metavar='TEXT', required=True, help='why; the tenants read it'
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return a row for each request that was made."""
        with _store(parsed_args) as store:
            from trove_ceph.db.replica_record import Requester

            now = store.now()
            instance_ids = parsed_args.instances
            if parsed_args.volume_type is not None:
                found = _of_volume_type(store.list(), parsed_args.volume_type)
                instance_ids = [one.instance_id for one in found if not one.state.is_reprovisioning]
                if not found:
                    # Such as the name of a pool instead of that of a type.
                    self.exit_status = base.ExitStatus.DIFFERS
                    self.note(
                        f'No replica has the volume type {parsed_args.volume_type}; "openstack '
                        'volume type list" shows the types.'
                    )
            requested = self.request_each(
                instance_ids,
                lambda one: store.request(one, Requester.OPERATOR, parsed_args.reason),
            )
        if requested:
            self.note(_STARTS)
        return _names(), [_values(one, now) for one in requested]


class Flatten(_ReplicasCommand, base.Lister):
    """Have the volumes of replicas flattened now, and list those.

    A flattened volume has all its data in its own image. It reads nothing from the source's image,
    which can be deleted then, and needs as much space as its data. A replica that follows is not
    flattened by itself, and serves meanwhile; its next clone undoes it. "replicas show" has the
    clone_depth, which is 0 at the end.

    The requests are independent: if one is refused, the others are made. OpenStack is asked as an
    administrator with OS_* variables or clouds.yaml.
    """

    table_columns = ('instance_id', 'source_id', 'volume_id', 'clone_depth', 'own_bytes')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('instances', nargs='+', metavar='INSTANCE', help='id of a replica')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return a row for each volume that is to be flattened."""
        from trove_ceph.cinder import client

        cinder = client.Cinder.of_environment()

        def request(instance_id: str) -> 'ReplicaRecord':
            record = _find(store, instance_id)
            cinder.request_flatten(_volume_to_flatten(cinder, record))
            return record

        with _store(parsed_args) as store:
            now = store.now()
            requested = self.request_each(parsed_args.instances, request)
        if requested:
            self.note(_STARTS)
        return _names(), [_values(one, now) for one in requested]


def _of_volume_type(
    records: 'Sequence[ReplicaRecord]', volume_type: str
) -> 'Sequence[ReplicaRecord]':
    """Return the replicas whose present volumes have a volume type in Cinder."""
    from trove_ceph.cinder import client

    cinder = client.Cinder.of_environment()
    return [one for one in records if _type_of(cinder, one) == volume_type]


def _type_of(cinder: 'client.Cinder', record: 'ReplicaRecord') -> str | None:
    volume = None if record.volume_id is None else cinder.find_volume(record.volume_id)
    return None if volume is None else volume.volume_type


def _volume_to_flatten(cinder: 'client.Cinder', record: 'ReplicaRecord') -> str:
    """Return the volume of a replica.

    :raises ReprovisioningRefusedError: it is about to be exchanged, or Cinder does not have it
    """
    if record.state.is_reprovisioning:
        raise exceptions.ReprovisioningRefusedError(
            f'{record}: is {record.state}, expected following: its volume is being exchanged; '
            'repeat the request when that has ended'
        )
    if record.volume_id is None or cinder.find_volume(record.volume_id) is None:
        raise exceptions.ReprovisioningRefusedError(
            f'{record}: Cinder has no volume {record.volume_id}, expected that of the replica; '
            're-provision it'
        )
    return record.volume_id


def _find(store: 'replicas.ReplicaStore', instance_id: str) -> 'ReplicaRecord':
    found = store.find(instance_id)
    if found is None:
        raise exceptions.RecordNotFoundError(
            f'instance {instance_id}: is no replica that was created as a clone; "replicas list" '
            'lists those'
        )
    return found


def _names() -> Sequence[str]:
    """Return the names of all fields: those of the record, and the ages."""
    from trove_ceph.db.replica_record import ReplicaRecord

    return (*(field.name for field in dataclasses.fields(ReplicaRecord)), *_AGES)


def _values(record: 'ReplicaRecord', now: datetime.datetime) -> Sequence[Any]:
    """Return the values of all fields, as commands show them."""
    ages = (_age(getattr(record, name), now) for name in _AGES.values())
    return (*(columns.of(value) for value in vars(record).values()), *ages)


def _age(time: datetime.datetime | None, now: datetime.datetime) -> columns.Seconds:
    return columns.Seconds(None if time is None else int((now - time).total_seconds()))


@contextlib.contextmanager
def _store(parsed_args: argparse.Namespace) -> 'Iterator[replicas.ReplicaStore]':
    with database.connect(parsed_args.config_file) as facade:
        from trove_ceph.db import replicas, transactions

        yield replicas.ReplicaStore(transactions.Transactions(facade))
