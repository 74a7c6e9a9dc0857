# SPDX-License-Identifier: Apache-2.0
"""Trove's long operations as commands that end when the operation has ended.

A plan of operations times commands, and the stock client returns as soon as its request is
accepted. Each verb here asks for one operation through Trove's ordinary API, waits for its end and
prints a line ``phase NAME`` when a part of it is done.
"""

import argparse
import functools
import os
import shlex
import subprocess
import time
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any

import openstack
import troveclient.exceptions

from trove_ceph import exceptions
from trove_ceph_bench import storage_operations
from trove_ceph_bench.targets import cloud

POLL_SEC = 0.5
# An instance's answer may wait for its guest agent; it is asked less often.
INSTANCE_POLL_SEC = 2

#: A backup that is not timed.
FIRST_BACKUP = 'bench-first'


class Operations:
    """Verbs on instances and backups, each of which waits for its end.

    :param trove: a client of Trove's API
    :param phase: called with the name of each part when it is done
    :param timeout_sec: of every wait
    :param took: called with the name of a part and the seconds that the cloud says it took
    :param keep: called with the name of a figure and the figure
    :param choose: has the cloud take backups as a word says
    """

    def __init__(
        self,
        trove: Any,
        phase: Callable[[str], None],
        timeout_sec: float = 1800,
        took: Callable[[str, float], None] = lambda name, seconds: None,
        keep: Callable[[str, int], None] = lambda name, figure: None,
        choose: Callable[[str], None] = lambda who: None,
    ):
        self._trove = trove
        self._phase = phase
        self._timeout_sec = timeout_sec
        self._took = took
        self._keep = keep
        self._choose = choose

    def backup(self, instance: str, name: str, parent: str | None = None) -> str:
        """Back an instance up and return the backup's id once it is COMPLETED.

        :raises LoadFailedError: the backup failed or did not end in time
        """
        source = self._find(self._trove.instances, instance)
        made = self._trove.backups.create(
            name, source.id, parent_id=parent and self._find(self._trove.backups, parent).id
        )
        self._phase('request')
        self._wait(f'backup {name}', lambda: self._backup_state(made.id), POLL_SEC)
        self._phase('completed')
        self._tell_parts(made.id)
        return made.id

    def _tell_parts(self, backup_id: str) -> None:
        """Tell what the cloud knows of a backup's parts, which is nothing of those of stock."""
        try:
            shown = self._trove.client.get(f'/backup_details/{backup_id}')[1]['backup_detail']
        except troveclient.exceptions.NotFound:
            return
        for name, key in (
            ('snapshot', 'snapshot_sec'),
            ('taking', 'take_sec'),
            ('quiesced', 'quiesced_sec'),
        ):
            if shown[key] is not None:
                self._took(name, shown[key])

    def choose_backups(self, instance: str, who: str, keep: str | None = None) -> None:
        """Have backups taken as a word says, and take the first one, so that all is up and running.

        Stock's backup leaves the server locked where its agent holds several connections to it.
        Who chooses it sees to it that agents are new (``BENCH_BACKUPS``).

        :param keep: the name of that backup; without one it is deleted
        :raises LoadFailedError: nobody can choose, or the backup failed
        """
        self._choose(who)
        name = keep or FIRST_BACKUP
        self.delete_backup(name)
        self.backup(instance, name)
        if not keep:
            self.delete_backup(name)

    def copy(self, backup: str) -> None:
        """Have a backup copied to the vault, and wait until it is.

        :raises LoadFailedError: it is not copied
        """
        shown = self._have_done(backup, 'copy')
        if shown['copied_at'] is None:
            raise exceptions.LoadFailedError(f'backup {backup} is not copied')
        self._took('copying', shown['copy_sec'])
        self._keep('moved_bytes', shown['moved_bytes'])

    def verify(self, backup: str) -> None:
        """Have a backup verified, and wait for the outcome.

        :raises LoadFailedError: something is wrong with it
        """
        shown = self._have_done(backup, 'verify')
        if shown['state'] != 'verified':
            raise exceptions.LoadFailedError(
                f'backup {backup} is {shown["state"]}: {shown["verify_error"]}'
            )
        self._took('verifying', shown['verify_sec'])

    def _have_done(self, backup: str, verb: str) -> dict[str, Any]:
        """Ask for what is done soon, wait until it is wanted no more, and return the details."""
        path = f'/backup_details/{self._find(self._trove.backups, backup).id}'
        shown: dict[str, Any] = {}

        def is_done() -> tuple[bool, str]:
            shown.update(self._trove.client.get(path)[1]['backup_detail'])
            return shown[f'{verb}_wanted_at'] is None, shown[f'{verb}_error'] or 'under way'

        self._trove.client.post(f'{path}/{verb}', body={})
        self._phase('request')
        self._wait(f'to {verb} backup {backup}', is_done, POLL_SEC)
        self._phase('done')
        return shown

    def restore(self, backup: str, name: str) -> str:
        """Make an instance like the backup's source of it; return its id once it is HEALTHY."""
        point = self._find(self._trove.backups, backup)
        source = self._trove.instances.get(point.instance_id)
        return self._create(
            name,
            source,
            restorePoint={'backupRef': point.id},
            flavor_id=source.flavor['id'],
            volume={'size': source.volume['size'], 'type': source.volume.get('type')},
            datastore=source.datastore['type'],
            datastore_version=source.datastore['version'],
        )

    def replica(self, instance: str, name: str) -> str:
        """Make a replica of an instance and return its id once it is HEALTHY."""
        source = self._find(self._trove.instances, instance)
        return self._create(name, source, replica_of=source.id)

    def list_databases(self, instance: str, at_once: int) -> None:
        """Ask for the databases of an instance several times at once, as busy clients do."""
        source = self._find(self._trove.instances, instance)
        with futures.ThreadPoolExecutor(at_once) as pool:
            asked = [pool.submit(self._trove.databases.list, source.id) for _ in range(2 * at_once)]
            for one in asked:
                one.result()

    def restart(self, instance: str) -> None:
        """Restart the MySQL of an instance, which ends all sessions; wait until it is HEALTHY."""
        source = self._find(self._trove.instances, instance)
        self._trove.instances.restart(source.id)
        self._wait(f'instance {instance}', lambda: self._instance_state(source.id), POLL_SEC)

    def delete_backup(self, backup: str) -> None:
        """Delete a backup and wait until it is gone; do nothing when there is none."""
        self._delete(self._trove.backups, backup)

    def delete_instance(self, instance: str) -> None:
        """Delete an instance and wait until it is gone; do nothing when there is none."""
        self._delete(self._trove.instances, instance)

    def _create(self, name: str, source: Any, **parameters: Any) -> str:
        made = self._trove.instances.create(name, nics=_nics(source), **parameters)
        self._phase('request')
        self._wait(f'instance {name}', lambda: self._instance_state(made.id), INSTANCE_POLL_SEC)
        self._phase('healthy')
        return made.id

    def _backup_state(self, backup_id: str) -> tuple[bool, str]:
        status = self._trove.backups.get(backup_id).status
        if status in ('FAILED', 'DELETE_FAILED'):
            raise exceptions.LoadFailedError(f'backup {backup_id} is {status}')
        return status == 'COMPLETED', status

    def _instance_state(self, instance_id: str) -> tuple[bool, str]:
        # The list does not ask the guest agent, an instance by itself does.
        for one in self._trove.instances.list():
            if one.id == instance_id:
                state = f'{one.status} {one.operating_status}'
                if one.status in ('ERROR', 'FAILED'):
                    raise exceptions.LoadFailedError(
                        f'instance {instance_id} is {state}: {self._fault(instance_id)}'
                    )
                return state == 'ACTIVE HEALTHY', state
        raise exceptions.LoadFailedError(f'instance {instance_id} is gone')

    def _fault(self, instance_id: str) -> str:
        fault = getattr(self._trove.instances.get(instance_id), 'fault', None)
        return (fault or {}).get('message', 'no reason given')

    def _delete(self, manager: Any, name: str) -> None:
        for found in [one for one in manager.list() if name in (one.name, one.id)]:
            manager.delete(found.id)
            self._wait(
                f'the end of {name}', functools.partial(self._is_gone, manager, found.id), POLL_SEC
            )

    def _is_gone(self, manager: Any, identity: str) -> tuple[bool, str]:
        found = [one.status for one in manager.list() if one.id == identity]
        return not found, ', '.join(found)

    def _find(self, manager: Any, name: str) -> Any:
        found = [one for one in manager.list() if name in (one.name, one.id)]
        if len(found) == 1:
            return found[0]
        how_many = 'none' if not found else f'{len(found)}: use an id'
        raise exceptions.TargetUnavailableError(f'{name}: Trove lists {how_many} of this name')

    def _wait(self, what: str, ask: Callable[[], tuple[bool, str]], poll_sec: float) -> None:
        deadline = time.monotonic() + self._timeout_sec
        while True:
            done, state = ask()
            if done:
                return
            if time.monotonic() > deadline:
                raise exceptions.LoadFailedError(
                    f'{what} is still {state} after {self._timeout_sec:.0f} s'
                )
            time.sleep(poll_sec)


def _nics(source: Any) -> list[dict[str, str]]:
    """Return the networks of an instance, for another one beside it."""
    networks = [one['network'] for one in source.addresses if one.get('network')]
    return [{'net-id': network} for network in dict.fromkeys(networks)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the verbs and their arguments."""
    parser.add_argument(
        '--timeout', type=float, default=1800, metavar='SECONDS', help='of each wait (%(default)s)'
    )
    verbs = parser.add_subparsers(dest='verb', required=True, metavar='VERB')
    for verb, names, text in (
        ('backup', ('instance', 'name'), 'back an instance up, until COMPLETED'),
        ('choose-backups', ('instance', 'who'), 'choose who takes backups, and take a first one'),
        ('copy', ('backup',), 'have a backup copied to the vault, until it is'),
        ('verify', ('backup',), 'have a backup verified, until it is'),
        ('restore', ('backup', 'name'), 'make an instance of a backup, until HEALTHY'),
        ('replica', ('instance', 'name'), 'make a replica of an instance, until HEALTHY'),
        ('list-databases', ('instance',), 'ask for the databases, several times at once'),
        ('restart', ('instance',), 'restart MySQL, which ends all sessions'),
        ('delete-backup', ('backup',), 'delete a backup, if there is one, until it is gone'),
        ('delete-instance', ('instance',), 'delete an instance, if there is one, until gone'),
    ):
        command = verbs.add_parser(verb, help=text, description=text)
        for name in names:
            command.add_argument(name, metavar=name.upper())
        if verb == 'backup':
            command.add_argument('--parent', help='the backup that this one is an increment to')
        if verb == 'choose-backups':
            command.add_argument('--keep', metavar='NAME', help='keep the first backup as NAME')
        if verb == 'list-databases':
            command.add_argument('--at-once', type=int, default=8, help='(default: %(default)s)')


def main(arguments: argparse.Namespace) -> None:
    """Carry out the verb that was parsed.

    :raises LoadFailedError: the operation failed, or the cloud refused it
    :raises TargetUnavailableError: there is no such instance or backup
    """
    given = vars(arguments)
    verb = given['verb'].replace('-', '_')
    accepted = ('instance', 'backup', 'name', 'parent', 'at_once', 'who', 'keep')
    parameters = {key: given[key] for key in accepted if given.get(key) is not None}
    _, trove = cloud.clients()
    operations = Operations(
        trove,
        _print_phase,
        arguments.timeout,
        lambda name, seconds: print(f'took {name} {seconds}', flush=True),
        functools.partial(storage_operations.keep, _directory()),
        _choose,
    )
    try:
        getattr(operations, verb)(**parameters)
    except _REFUSALS as error:
        raise exceptions.LoadFailedError(f'Trove refused {arguments.verb}: {error}') from error


def _directory() -> Path | None:
    found = os.environ.get('BENCH_DIRECTORY')
    return Path(found) if found else None


def _choose(who: str) -> None:
    command = shlex.split(os.environ.get('BENCH_BACKUPS', ''))
    if not command:
        raise exceptions.LoadFailedError(
            'BENCH_BACKUPS names no command that chooses who takes backups'
        )
    if status := subprocess.run([*command, who], stdin=subprocess.DEVNULL).returncode:
        raise exceptions.LoadFailedError(f'{shlex.join(command)} {who}: exit status {status}')


def _print_phase(name: str) -> None:
    print(f'phase {name}', flush=True)


_REFUSALS = (troveclient.exceptions.ClientException, openstack.exceptions.SDKException)
