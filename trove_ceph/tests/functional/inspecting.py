# SPDX-License-Identifier: Apache-2.0
"""Inspections as the storage service does them, with its key."""

import pymysql

from trove_ceph.storage.ceph import backend, connection, keyring
from trove_ceph.tests.functional import mysqld, storage, virtual_machine
from trove_ceph.verification import inspection, isolation, report

VERSION = '9.7.4'
MEMORY_BYTES = 640 * 1024**2
#: An emulated virtual machine starts in a minute, and in more on a busy host.
TIME_LIMIT_SEC = {report.NAMESPACES: 300, report.VM: 600}


def settings(directory, sample_bytes=1024**3, mode=report.NAMESPACES):
    """Return the settings of inspections, and of builds of golden volumes.

    :param mode: how the server is isolated from this host
    """
    # Confined processes access their files as a user of their own.
    directory.parent.chmod(0o711)
    return report.InspectionSettings(
        roots={'9.7': mysqld.rootfs()},
        directory=directory,
        memory_bytes=MEMORY_BYTES,
        bytes_per_sec=0,
        time_limit_sec=TIME_LIMIT_SEC[mode],
        deep=True,
        sample_tables=5,
        sample_bytes=sample_bytes,
        isolation=mode,
        vm_accelerator=virtual_machine.ACCELERATOR,
        **({'vm_image_directory': virtual_machine.directory()} if mode == report.VM else {}),
    )


def inspector(conf, directory, sample_bytes=1024**3, mode=report.NAMESPACES, **options):
    """Return an inspector.

    :param mode: how the server is isolated from this host
    :param options: options of its connection to Ceph
    """
    its_settings = settings(directory, sample_bytes, mode)
    return inspection.Inspector(
        backend.CephBackend(connection.Connection(str(conf), storage.USER, **options)),
        isolation.Sandboxes(
            *(str(conf), storage.USER, its_settings, keyring.find_key),
            # An emulated virtual machine starts on any host.
            probe=lambda *_: None,
        ),
        its_settings,
    )


def inspect(inspector, work, options, directory, read):
    """Inspect a backup, and read its content meanwhile.

    :param directory: the inspector's directory
    :param read: called once with a function that runs a statement and returns its rows
    :returns: the inspection, and the result of ``read``; None if no server started
    """
    results = []

    def read_once(phase, *_):
        if phase != 'checking' or results:
            return
        (socket,) = directory.glob('*/run/mysqld.sock')
        with (
            pymysql.connect(unix_socket=str(socket), user='root') as connection,
            connection.cursor() as cursor,
        ):

            def query(statement):
                cursor.execute(statement)
                return cursor.fetchall()

            results.append(read(query))

    inspection_result = inspector.inspect(work, options, note=read_once)
    return inspection_result, results[0] if results else None
