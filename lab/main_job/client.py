# SPDX-License-Identifier: Apache-2.0
"""The stock command-line client, as the tenant runs it."""

import json
import os
import pathlib
import subprocess
import time

from main_job.errors import JobError

POLL_SEC = 4
CREATE_TIMEOUT_SEC = 1500
DELETE_TIMEOUT_SEC = 300
COMMAND_TIMEOUT_SEC = 300


class Client:
    """``openstack database …`` under one identity."""

    def __init__(self, venv: pathlib.Path, credentials: dict):
        self._program = str(venv / 'bin' / 'openstack')
        self._environ = dict(os.environ, **credentials)

    def find_instance(self, name: str) -> dict | None:
        """Return the instance with this name, or None."""
        for one in self.list_instances():
            if one['Name'] == name:
                return self.get_instance(one['ID'])
        return None

    def list_instances(self) -> list[dict]:
        """Return the rows of the list of instances."""
        return self._json('database', 'instance', 'list')

    def list_backups(self) -> list[dict]:
        """Return the rows of the list of backups."""
        return self._json('database', 'backup', 'list')

    def get_instance(self, instance_id: str) -> dict:
        return self._json('database', 'instance', 'show', instance_id)

    def network_id(self, name: str) -> str:
        return self._json('network', 'show', name)['id']

    def flavor_name(self, flavor_id: str) -> str:
        return self._json('flavor', 'show', flavor_id)['name']

    def create_instance(self, name: str, **options) -> dict:
        """Request an instance, which is then in status BUILD.

        :param options: the stock client's options, with ``_`` for ``-``.
        """
        flags = []
        for key, value in options.items():
            flag = '--' + key.replace('_', '-')
            flags += [flag] if value is True else [flag, str(value)]
        return self._json('database', 'instance', 'create', name, *flags)

    def wait_healthy(self, instance_id: str, note) -> dict:
        """Return the instance once it is ACTIVE and HEALTHY.

        :param note: called with a text and the seconds waited so far.
        :raises JobError: the instance fails (the message has its fault), or the time limit passes.
        """
        started = time.monotonic()
        while True:
            instance = self.get_instance(instance_id)
            status, health = instance['status'], instance.get('operating_status', '')
            waited_sec = time.monotonic() - started
            note(f'{status} {health}', waited_sec)
            if (status, health) == ('ACTIVE', 'HEALTHY'):
                return instance
            if status in ('ERROR', 'FAILED'):
                fault = instance.get('fault') or 'no reason given'
                raise JobError(f'instance {instance_id} is {status}: {fault}')
            if waited_sec > CREATE_TIMEOUT_SEC:
                raise JobError(
                    f'instance {instance_id} is still {status} {health} after {int(waited_sec)} s'
                )
            time.sleep(POLL_SEC)

    def delete_instance(self, instance_id: str):
        """Delete an instance that is not being built, and wait until it is gone."""
        self.request_deletion('instance', instance_id)
        deadline = time.monotonic() + DELETE_TIMEOUT_SEC
        while any(one['ID'] == instance_id for one in self.list_instances()):
            if time.monotonic() > deadline:
                raise JobError(
                    f'instance {instance_id} still exists {DELETE_TIMEOUT_SEC} s after its deletion'
                )
            time.sleep(POLL_SEC)

    def request_deletion(self, kind: str, identity: str, *options: str):
        """Request the deletion of an ``instance`` or a ``backup``.

        :raises JobError: it is refused, for instance for an instance that is being built.
        """
        self._run('database', kind, 'delete', identity, *options)

    def ensure_database(self, instance_id: str, name: str):
        databases = self._json('database', 'db', 'list', instance_id)
        if name not in [one['Name'] for one in databases]:
            self._run('database', 'db', 'create', instance_id, name)

    def ensure_user(self, instance_id: str, user: str, password: str, database: str):
        users = self._json('database', 'user', 'list', instance_id)
        if user not in [one['Name'] for one in users]:
            self._run(
                'database', 'user', 'create', instance_id, user, password, '--databases', database
            )

    def _json(self, *arguments):
        return json.loads(self._run(*arguments, '-f', 'json') or '[]')

    def _run(self, *arguments):
        shown = ' '.join(arguments[:4])
        try:
            done = subprocess.run(
                [self._program, *arguments],
                text=True,
                capture_output=True,
                env=self._environ,
                timeout=COMMAND_TIMEOUT_SEC,
            )
        except subprocess.TimeoutExpired:
            # The exception's text would show the arguments, with a password.
            raise JobError(
                f'openstack {shown} … did not end within {COMMAND_TIMEOUT_SEC} s'
            ) from None
        if done.returncode:
            raise JobError(f'openstack {shown} … failed: {done.stderr.strip()[-500:]}')
        return done.stdout
