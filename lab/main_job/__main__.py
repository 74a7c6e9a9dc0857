# SPDX-License-Identifier: Apache-2.0
"""Run the main job: ``python -m main_job SETTINGS.json``.

A repeated run finds the instance, queries it again and changes nothing.
"""

import datetime
import json
import os
import pathlib
import secrets
import sys
import time

import cloud
import openstack

from main_job import client, database, placement, report
from main_job.errors import JobError
from main_job.progress import Progress

INSTANCE, DATABASE, USER = 'first-database', 'shop', 'shop'
VOLUME_TYPE, POOL, DEVICE_CLASS = 'nvme', 'volumes-nvme', 'nvme'
FLAVOR, NETWORK = 'db.small', 'tenant-net'


class MainJob:
    """One run of the main job against one lab."""

    def __init__(self, settings: dict):
        self.settings = settings
        self.root = pathlib.Path(settings['lab_root'])
        self.credentials = json.loads((self.root / 'etc' / 'credentials.json').read_text())
        self.client = client.Client(self.root / 'venv', self.credentials['tenant'])
        self.report_path = self.root / 'report.json'
        self.report = report.load(self.report_path)
        self.progress = Progress({})

    def run(self):
        instance, created = self._ensure_instance()
        if not created and self._belongs(self.report, instance):
            self._verify(instance)
        else:
            self._use(instance)
        report.save(self.report_path, self.report)
        print(report.render(self.report))

    def _ensure_instance(self):
        """Return the instance and whether this run created it."""
        instance = self.client.find_instance(INSTANCE)
        if instance and instance['status'] in ('ERROR', 'FAILED'):
            with self.progress.step(
                'remove_failed', 'remove the failed instance of an earlier run'
            ):
                self.client.delete_instance(instance['id'])
            instance = None
        if instance:
            return self._healthy(instance['id'], 'wait for the database'), False
        self.progress.durations.clear()
        started = time.monotonic()
        with self.progress.step('request', f'openstack database instance create {INSTANCE}'):
            network_id = self.client.network_id(NETWORK)
            instance = self.client.create_instance(
                INSTANCE,
                flavor=FLAVOR,
                volume_type=VOLUME_TYPE,
                size=self.settings['lab_volume_gib'],
                datastore='mysql',
                nic=f'net-id={network_id}',
                is_public=True,
            )
        instance = self._healthy(instance['id'], 'build it until HEALTHY')
        self.progress.durations['create_to_healthy'] = round(time.monotonic() - started, 1)
        return instance, True

    def _healthy(self, instance_id, text):
        with self.progress.step('build', text):
            return self.client.wait_healthy(instance_id, self.progress.note)

    @staticmethod
    def _belongs(previous, instance):
        return previous.get('instance', {}).get('id') == instance['id']

    def _verify(self, instance):
        """Query the database of an earlier run again."""
        if 'seconds' not in self.report:
            raise JobError(f'{self.report_path} is damaged: remove it')
        with self.progress.step('verify', 'query the database again'):
            # The instance may have been resized since.
            facts = self._instance_facts(instance)
            self.report |= {'instance': facts, 'try_next': self._try_next(facts)}
            server = self._database(facts)
            server.wait_reachable()
            self.report['mysql'] = server.settings()
            self.report['placement'] = self._placement(facts['id'])

    def _use(self, instance):
        """Create a database and a user, connect, run sysbench, query the placement in Ceph."""
        step = self.progress.step
        facts = self._instance_facts(instance)
        server = self._database(facts)
        with step('database_and_user', 'create a database and a user'):
            self.client.ensure_database(instance['id'], DATABASE)
            self.client.ensure_user(instance['id'], USER, server.password, DATABASE)
        with step('connect', f'connect to {facts["address"]} over the network'):
            server.wait_reachable()
        with step('sysbench_prepare', 'sysbench prepare'):
            server.prepare()
        seconds = self.settings['lab_sysbench_seconds']
        with step('sysbench_run', f'sysbench oltp_read_write, {seconds} s'):
            figures = server.load(seconds)
        with step('placement', 'query the placement of the volume in Ceph'):
            volume_placement = self._placement(instance['id'])
        self.report = {
            'made_at': datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds'),
            'instance': facts,
            'mysql': server.settings(),
            'sysbench': figures,
            'sysbench_seconds': seconds,
            'placement': volume_placement,
            'virt_type': self._virt_type(),
            'seconds': self._seconds(),
            'connect': f'mysql -h {facts["address"]} -u {USER} -p{server.password} {DATABASE}',
            'try_next': self._try_next(facts),
        }

    @staticmethod
    def _try_next(facts):
        return [
            'eval "$(make -s lab-env)"',
            'openstack database instance list',
            f'openstack database instance resize volume {INSTANCE} {facts["size_gib"] + 1}',
            'make lab-status',
        ]

    def _seconds(self):
        durations = dict(self.progress.durations)
        started = os.environ.get('LAB_STARTED')
        if started:
            durations['everything_since_make_lab'] = round(time.time() - float(started), 1)
        return durations

    def _instance_facts(self, instance):
        public = [a['address'] for a in instance['addresses'] if a['type'] == 'public']
        if not public:
            raise JobError(f'instance {instance["id"]} has no floating IP: {instance["addresses"]}')
        flavor_id = instance.get('flavor')
        return {
            'id': instance['id'],
            'name': instance['name'],
            'status': 'ACTIVE, HEALTHY',
            'address': public[0],
            'flavor': self.client.flavor_name(flavor_id) if flavor_id else FLAVOR,
            'volume_type': VOLUME_TYPE,
            # The stock client shows the size of the volume in GiB.
            'size_gib': instance['volume'],
            'datastore_version': instance['datastore_version'],
        }

    def _database(self, facts):
        return database.Database(
            host=facts['address'], user=USER, password=self._password(facts['id']), name=DATABASE
        )

    def _password(self, instance_id):
        """Return the tenant's password for this instance, the same in all runs."""
        path = self.root / 'etc' / 'secrets' / f'shop-{instance_id}'
        # Empty: a run was interrupted between creating and writing the file.
        if not path.exists() or not path.read_text():
            path.touch(mode=0o600)
            path.write_text(secrets.token_urlsafe(12).replace('-', 'x'))
        return path.read_text()

    def _placement(self, instance_id):
        admin = cloud.connect(self.credentials['admin'])
        volumes = list(admin.block_storage.volumes(all_projects=True, name=f'trove-{instance_id}'))
        if len(volumes) != 1:
            raise JobError(f'{len(volumes)} volumes are named trove-{instance_id}, 1 expected')
        return placement.prove(
            str(self.root / 'etc/ceph/ceph.conf'), POOL, f'volume-{volumes[0].id}', DEVICE_CLASS
        )

    def _virt_type(self):
        found = (self.root / 'state' / 'virt-type').read_text().strip()
        return 'KVM' if found == 'kvm' else 'software emulation'


def main() -> int:
    settings = json.loads(pathlib.Path(sys.argv[1]).read_text())
    print('The main job: a database for the tenant')
    try:
        MainJob(settings).run()
    except (JobError, openstack.exceptions.SDKException) as e:
        print(f'\nlab: the main job failed: {e}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('\nlab: interrupted; run it again to continue', file=sys.stderr)
        return 130
    return 0


if __name__ == '__main__':
    sys.exit(main())
