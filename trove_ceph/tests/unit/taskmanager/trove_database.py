# SPDX-License-Identifier: Apache-2.0
"""Trove's own database in a file: its real tables and models, one for the whole process."""

import functools
import os
import sqlite3
import tempfile
import uuid

from trove.backup import models as backup_models
from trove.backup.state import BackupState
from trove.common import cfg as trove_cfg
from trove.datastore import models as datastore_models
from trove.db import get_db_api
from trove.db.sqlalchemy import session
from trove.instance import models as instance_models
from trove.instance import service_status
from trove.instance.tasks import InstanceTasks

from trove_ceph.db import transactions
from trove_ceph.tests.unit.db import database

CONF = trove_cfg.CONF

# Created at import, so that it is removed after the files of the tests.
_DIRECTORY = tempfile.TemporaryDirectory(prefix='trove-ceph-test-')


def path():
    """Return the path of the database, which Trove's configuration names from now on.

    Tests that read configuration files or reset the configuration remove the name from it.
    """
    found = os.path.join(_DIRECTORY.name, 'trove.sqlite')
    CONF.set_override('connection', database.url(found), 'database')
    CONF.set_override('sqlite_synchronous', False, 'database')
    _create(found)
    return found


@functools.cache
def _create(path):
    """Create the database with Trove's tables and ours."""
    get_db_api().db_sync(CONF)
    # Trove leaves readers open after an error; they must not block writers.
    _keep_open(path).execute('PRAGMA journal_mode=WAL')
    session.configure_db()
    database.with_tables(path)
    # A store that was used before would have another database for as long as the process lives.
    assert transactions.FACADE.writer.get_engine().url.database == path


@functools.cache
def _keep_open(path):
    """Return a connection that lasts as long as the process.

    Each transaction has a connection of its own, and SQLite writes back and removes its log when
    the last one is closed.
    """
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


@functools.cache
def datastore_version():
    """Return the id of version 9.7 of the datastore ``mysql``."""
    path()
    store = datastore_models.DBDatastore.create(name='mysql', default_version_id=None)
    version = datastore_models.DBDatastoreVersion.create(
        datastore_id=store.id,
        name='9.7',
        manager='mysql',
        image_id='image',
        packages='',
        active=True,
        version='9.7',
        registry_ext='trove_ceph.guestagent.manager.Manager',
        repl_strategy='',
    )
    return version.id


@functools.cache
def foreign_version(
    name='served-by-others',
    manager='postgresql',
    registry_ext='trove.guestagent.datastore.postgres.manager.PostgresManager',
):
    """Return the id of a datastore version with a guest manager that is not ours."""
    path()
    store = datastore_models.DBDatastore.create(name=name, default_version_id=None)
    version = datastore_models.DBDatastoreVersion.create(
        datastore_id=store.id,
        name='16',
        manager=manager,
        image_id='image',
        packages='',
        active=True,
        version='16',
        registry_ext=registry_ext,
        repl_strategy='',
    )
    return version.id


def add_instance(project_id, volume_id, **facts):
    """Return a new instance that runs."""
    path()
    instance = instance_models.DBInstance.create(
        task_status=facts.pop('task_status', InstanceTasks.NONE),
        name='db1',
        tenant_id=project_id,
        volume_id=volume_id,
        volume_size=1,
        flavor_id='1',
        compute_instance_id=facts.pop('server_id', str(uuid.uuid4())),
        datastore_version_id=facts.pop('version_id', None) or datastore_version(),
        **facts,
    )
    instance_models.InstanceServiceStatus.create(
        instance_id=instance.id, status=service_status.ServiceStatuses.HEALTHY
    )
    return instance


def add_backup(instance, **facts):
    """Return a backup as Trove's API creates it before it calls the taskmanager."""
    values = {
        'name': 'nightly',
        'description': 'of the night',
        'tenant_id': instance.tenant_id,
        'instance_id': instance.id,
        'state': BackupState.NEW,
        'datastore_version_id': datastore_version(),
        'storage_driver': 'cinder',
        'backup_type': 'full',
        'parent_id': None,
    }
    return backup_models.DBBackup.create(**values | facts)


def backup(backup_id):
    return backup_models.DBBackup.find_by(id=backup_id)


def instance(instance_id):
    return instance_models.DBInstance.find_by(id=instance_id)
