# SPDX-License-Identifier: Apache-2.0
"""Trove's long operations as commands that wait until the operation ends.

A plan of operations times commands, but the stock client returns as soon as Trove accepts the
request. Each verb here requests one operation through Trove's public API, waits until it ends and
prints a line ``phase NAME`` at the end of each phase.
"""

import argparse
import functools
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
from typing import Any

import openstack
import troveclient.exceptions

from trove_ceph import exceptions
from trove_ceph_bench import configured, operation_output
from trove_ceph_bench.targets import cloud

POLL_SEC = 0.5
# Showing an instance may wait for its guest agent, so poll it less often.
INSTANCE_POLL_SEC = 2
_ADDRESSED_POLL_SEC = 15

#: A backup that is not timed.
FIRST_BACKUP = 'bench-first'


class Operations:
    """Operations on instances and backups; each waits until the operation ends.

    :param trove: a client of Trove's API
    :param phase: called with the name of each phase when it ends
    :param timeout_sec: limit of every wait
    :param took: called with the name of a phase and the seconds that the cloud reports for it
    :param record: called with the name of a figure and the figure
    :param choose: configures the cloud's backup method: ``stock`` or a quiesce level
    """

    def __init__(
        self,
        trove: Any,
        phase: Callable[[str], None],
        timeout_sec: float = 1800,
        took: Callable[[str, float], None] = lambda name, seconds: None,
        record: Callable[[str, int], None] = lambda name, figure: None,
        choose: Callable[[str], None] = lambda method: None,
    ):
        self._trove = trove
        self._phase = phase
        self._timeout_sec = timeout_sec
        self._took = took
        self._record = record
        self._choose = choose

    def backup(self, instance: str, name: str, parent: str | None = None) -> str:
        """Back up an instance and return the id of the backup once it is COMPLETED.

        :raises LoadFailedError: the backup failed or timed out
        """
        source = cloud.find_one(self._trove.instances, instance)
        backup = self._trove.backups.create(
            name, source.id, parent_id=parent and cloud.find_one(self._trove.backups, parent).id
        )
        self._phase('request')
        self._wait(f'backup {name}', lambda: self._backup_state(backup.id), POLL_SEC)
        self._phase('completed')
        self._report_phases(backup.id)
        return backup.id

    def _report_phases(self, backup_id: str) -> None:
        """Report the phases of a backup that the cloud recorded; stock Trove records none."""
        try:
            details = self._trove.client.get(f'/backup_details/{backup_id}')[1]['backup_detail']
        except troveclient.exceptions.NotFound:
            return
        for name, key in (
            ('snapshot', 'snapshot_sec'),
            ('taking', 'take_sec'),
            ('quiesced', 'quiesced_sec'),
        ):
            if details[key] is not None:
                self._took(name, details[key])

    def choose_backups(self, instance: str, method: str, keep: str | None = None) -> None:
        """Choose the cloud's backup method, and create a first backup so that all services are up.

        Stock's backup leaves the server locked if the agent holds several connections to it, so the
        command in ``BENCH_BACKUPS`` restarts the agents when it chooses stock.

        :param method: ``stock`` or a quiesce level
        :param keep: name of the first backup; None deletes it
        :raises LoadFailedError: ``BENCH_BACKUPS`` is unset or fails, or the backup failed
        """
        self._choose(method)
        name = keep or FIRST_BACKUP
        self.delete_backup(name)
        self.backup(instance, name)
        if not keep:
            self.delete_backup(name)

    def copy(self, backup: str) -> None:
        """Request the copy of a backup to the vault, and wait until it ends.

        :raises LoadFailedError: the copy failed or timed out
        """
        details = self._request(backup, 'copy')
        if details['copied_at'] is None:
            raise exceptions.LoadFailedError(f'backup {backup} is not copied')
        self._took('copying', details['copy_sec'])
        self._record('moved_bytes', details['moved_bytes'])

    def verify(self, backup: str) -> None:
        """Request the verification of a backup, and wait for its result.

        :raises LoadFailedError: the backup is not verified
        """
        details = self._request(backup, 'verify')
        if details['state'] != 'verified':
            raise exceptions.LoadFailedError(
                f'backup {backup} is {details["state"]}: {details["verify_error"]}'
            )
        self._took('verifying', details['verify_sec'])

    def _request(self, backup: str, verb: str) -> dict[str, Any]:
        """Request an action on a backup, wait until it ends, and return the backup's details."""
        path = f'/backup_details/{cloud.find_one(self._trove.backups, backup).id}'
        details: dict[str, Any] = {}

        def is_done() -> tuple[bool, str]:
            details.update(self._trove.client.get(path)[1]['backup_detail'])
            return details[f'{verb}_wanted_at'] is None, details[f'{verb}_error'] or 'in progress'

        self._trove.client.post(f'{path}/{verb}', body={})
        self._phase('request')
        self._wait(f'{verb} of backup {backup}', is_done, POLL_SEC)
        self._phase('done')
        return details

    def restore(self, backup: str, name: str) -> str:
        """Restore a backup to an instance like its source; return the id once it is HEALTHY."""
        found = cloud.find_one(self._trove.backups, backup)
        source = self._trove.instances.get(found.instance_id)
        return self._create(name, **parameters_like(source), restorePoint={'backupRef': found.id})

    def replica(self, instance: str, name: str) -> str:
        """Create a replica of an instance and return its id once it is HEALTHY."""
        source = cloud.find_one(self._trove.instances, instance)
        return self._create(name, nics=nics_of(source), replica_of=source.id)

    def create(
        self,
        name: str,
        like: str,
        flavor_id: str,
        volume: Mapping[str, Any],
        zone: str | None = None,
        configuration_id: str | None = None,
    ) -> str:
        """Create an instance like another one; return the id once it is HEALTHY.

        :param flavor_id: of the new instance
        :param volume: its ``size`` in GiB and its ``type``
        :param zone: availability zone; None: the request names none
        :param configuration_id: of a configuration group; None: the request names none
        """
        source = self._trove.instances.get(cloud.find_one(self._trove.instances, like).id)
        return self._create(
            name,
            **parameters_like(source)
            | {'flavor_id': flavor_id, 'volume': dict(volume), 'configuration': configuration_id},
            access=access_like(source),
            availability_zone=zone,
        )

    def list_databases(self, instance: str, at_once: int) -> None:
        """List the databases of an instance several times in parallel, as busy clients do."""
        source = cloud.find_one(self._trove.instances, instance)
        with futures.ThreadPoolExecutor(at_once) as pool:
            requests = [
                pool.submit(self._trove.databases.list, source.id) for _ in range(2 * at_once)
            ]
            for request in requests:
                request.result()

    def await_healthy(self, instance: str) -> None:
        """Wait until an instance is HEALTHY.

        :raises LoadFailedError: it failed, or this took too long
        """
        found = cloud.find_one(self._trove.instances, instance)
        self._wait(f'instance {instance}', lambda: self._instance_state(found.id), POLL_SEC)

    def resize(self, instance: str, flavor: str) -> None:
        """Give an instance another flavor, and wait until it is HEALTHY.

        Do nothing if it has the flavor.

        :raises LoadFailedError: it failed, was reverted, or took too long
        """
        source = cloud.find_one(self._trove.instances, instance)
        wanted = cloud.find_one(self._trove.flavors, flavor)
        if str(source.flavor['id']) == str(wanted.id):
            return
        self._trove.instances.resize_instance(source.id, wanted.id)
        self._phase('request')
        self._wait(f'instance {instance}', lambda: self._instance_state(source.id), POLL_SEC)
        self._phase('healthy')
        # Trove reverts a resize that fails; the instance is then healthy with the flavor before.
        resized = cloud.find_one(self._trove.instances, source.id)
        if str(resized.flavor['id']) != str(wanted.id):
            raise exceptions.LoadFailedError(
                f'instance {instance} is healthy, but has not got the flavor {flavor}: the resize '
                f'failed and was reverted'
            )

    def restart(self, instance: str) -> None:
        """Restart the MySQL of an instance, which ends all sessions; wait until it is HEALTHY."""
        source = cloud.find_one(self._trove.instances, instance)
        self._trove.instances.restart(source.id)
        self._wait(f'instance {instance}', lambda: self._instance_state(source.id), POLL_SEC)

    def delete_backup(self, backup: str) -> None:
        """Delete a backup and wait until it is gone; do nothing if there is none."""
        self._delete(self._trove.backups, backup)

    def delete_instance(self, instance: str) -> None:
        """Delete an instance and wait until it is gone; do nothing if there is none."""
        self._delete(self._trove.instances, instance)

    def _create(self, name: str, **parameters: Any) -> str:
        instance = self._trove.instances.create(name, **parameters)
        self._phase('request')
        self._wait(f'instance {name}', lambda: self._instance_state(instance.id), INSTANCE_POLL_SEC)
        self._phase('healthy')
        return instance.id

    def _backup_state(self, backup_id: str) -> tuple[bool, str]:
        status = self._trove.backups.get(backup_id).status
        if status in ('FAILED', 'DELETE_FAILED'):
            raise exceptions.LoadFailedError(f'backup {backup_id} is {status}')
        return status == 'COMPLETED', status

    def _instance_state(self, instance_id: str) -> tuple[bool, str]:
        # Listing does not call the guest agent; showing an instance does.
        for one in cloud.list_all(self._trove.instances):
            if one.id == instance_id:
                raise_if_failed(self._trove, one)
                state = f'{one.status} {one.operating_status}'
                return state == 'ACTIVE HEALTHY', state
        raise exceptions.LoadFailedError(f'instance {instance_id} is gone')

    def _delete(self, manager: Any, name: str) -> None:
        for found in [one for one in cloud.list_all(manager) if name in (one.name, one.id)]:
            manager.delete(found.id)
            self._wait(
                f'deletion of {name}', functools.partial(self._is_gone, manager, found.id), POLL_SEC
            )

    def _is_gone(self, manager: Any, identity: str) -> tuple[bool, str]:
        found = [one.status for one in cloud.list_all(manager) if one.id == identity]
        return not found, ', '.join(found)

    def _wait(self, what: str, poll: Callable[[], tuple[bool, str]], poll_sec: float) -> None:
        deadline = time.monotonic() + self._timeout_sec
        while True:
            done, state = poll()
            if done:
                return
            if time.monotonic() > deadline:
                raise exceptions.LoadFailedError(
                    f'{what} is still {state} after {self._timeout_sec:.0f} s'
                )
            time.sleep(poll_sec)


def parameters_like(source: Any) -> dict[str, Any]:
    """Return the parameters of the creation of an instance like another one."""
    parameters = {
        'flavor_id': source.flavor['id'],
        'volume': {'size': source.volume['size'], 'type': source.volume.get('type')},
        'datastore': source.datastore['type'],
        'datastore_version': source.datastore['version'],
        'nics': nics_of(source),
    }
    if configuration := getattr(source, 'configuration', None):
        parameters['configuration'] = configuration['id']
    return parameters


def fault_of(trove: Any, instance_id: str) -> str:
    """Return why an instance failed."""
    fault = getattr(trove.instances.get(instance_id), 'fault', None)
    return (fault or {}).get('message', 'no reason given')


def hosts_of(instance: Any) -> list[str]:
    """Return the addresses that a client can use: the public ones, if there are any."""
    return _public_hosts_of(instance) or [one['address'] for one in _addresses_of(instance)]


def listing_poll_sec(listed: Iterable[Any]) -> float:
    """Return when to list instances again, to whose addresses clients connect all the time.

    If all have a public address, their states only tell of a failure. Each listing has Trove, Nova
    and Neutron work, on a processor that they may share with the instances.
    """
    return _ADDRESSED_POLL_SEC if all(map(_public_hosts_of, listed)) else INSTANCE_POLL_SEC


def _public_hosts_of(instance: Any) -> list[str]:
    return [one['address'] for one in _addresses_of(instance) if one['type'] == 'public']


def _addresses_of(instance: Any) -> list[dict[str, str]]:
    # One that is being built may have none yet.
    return getattr(instance, 'addresses', [])


def access_like(source: Any) -> dict[str, bool]:
    """Return the access of an instance that is as public as another one."""
    return {'is_public': bool(_public_hosts_of(source))}


def raise_if_failed(trove: Any, listed: Any) -> None:
    """Raise LoadFailedError with the reason if a listed instance has failed."""
    if listed.status in ('ERROR', 'FAILED'):
        raise exceptions.LoadFailedError(
            f'instance {listed.id} is {listed.status}: {fault_of(trove, listed.id)}'
        )


def nics_of(source: Any) -> list[dict[str, str]]:
    """Return the networks of an instance, to attach another instance to them."""
    networks = [one['network'] for one in source.addresses if one.get('network')]
    return [{'net-id': network} for network in dict.fromkeys(networks)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verbs and their arguments to a parser."""
    parser.add_argument(
        '--timeout',
        type=float,
        default=1800,
        metavar='SECONDS',
        help='limit of each wait (%(default)s)',
    )
    verbs = parser.add_subparsers(dest='verb', required=True, metavar='VERB')
    for verb, names, text in (
        ('backup', ('instance', 'name'), 'back up an instance; wait until COMPLETED'),
        (
            'choose-backups',
            ('instance', 'method'),
            'choose the backup method (stock, none, ddl, freeze), and create a first backup',
        ),
        ('copy', ('backup',), 'copy a backup to the vault; wait until it is copied'),
        ('verify', ('backup',), 'verify a backup; wait for the result'),
        ('restore', ('backup', 'name'), 'restore a backup to an instance; wait until HEALTHY'),
        ('replica', ('instance', 'name'), 'create a replica of an instance; wait until HEALTHY'),
        ('list-databases', ('instance',), 'list the databases, several times in parallel'),
        ('await-healthy', ('instance',), 'wait until an instance is HEALTHY'),
        ('resize', ('instance', 'flavor'), 'give an instance another flavor; wait until HEALTHY'),
        ('restart', ('instance',), 'restart MySQL, which ends all sessions'),
        ('delete-backup', ('backup',), 'delete a backup if it exists; wait until it is gone'),
        ('delete-instance', ('instance',), 'delete an instance if it exists; wait until gone'),
    ):
        command = verbs.add_parser(verb, help=text, description=text)
        for name in names:
            command.add_argument(name, metavar=name.upper())
        if verb == 'backup':
            command.add_argument('--parent', help='the backup that this increment is based on')
        if verb == 'choose-backups':
            command.add_argument('--keep', metavar='NAME', help='keep the first backup as NAME')
        if verb == 'list-databases':
            command.add_argument(
                '--at-once', type=int, default=8, help='number of parallel requests (%(default)s)'
            )


def main(arguments: argparse.Namespace) -> None:
    """Run the parsed verb.

    :raises LoadFailedError: the operation failed, or the cloud refused it
    :raises TargetUnavailableError: there is no such instance or backup
    """
    parsed = vars(arguments)
    verb = parsed['verb'].replace('-', '_')
    accepted = ('instance', 'backup', 'name', 'parent', 'at_once', 'method', 'keep', 'flavor')
    parameters = {key: parsed[key] for key in accepted if parsed.get(key) is not None}
    _, trove = cloud.clients()
    operations = Operations(
        trove,
        operation_output.print_phase,
        arguments.timeout,
        lambda name, seconds: print(f'took {name} {seconds}', flush=True),
        functools.partial(operation_output.record_figure, operation_output.directory(os.environ)),
        _choose,
    )
    try:
        getattr(operations, verb)(**parameters)
    except _REFUSALS as error:
        raise exceptions.LoadFailedError(f'Trove refused {arguments.verb}: {error}') from error


def _choose(method: str) -> None:
    configured.run('BENCH_BACKUPS', 'chooses the backup method', method)


_REFUSALS = (troveclient.exceptions.ClientException, openstack.exceptions.SDKException)
