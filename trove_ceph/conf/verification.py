# SPDX-License-Identifier: Apache-2.0
"""Options of the inspection of backups, which the storage service does."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'trove_ceph_verification',
    title='Verification of backups',
    help='How trove-ceph-storage starts a MySQL server on a clone of a backup, to see whether it '
    'restores. All copies of the service must agree, because any of them may be asked. Needs root.',
)

OPTS = [
    cfg.DictOpt(
        'mysqld_roots',
        default={},
        help='Root file systems with a mysqld in their PATH, by datastore version: '
        '"9.7.4:/srv/mysql-9.7.4,8.4:/srv/mysql-8.4". A version without an entry of its own takes '
        "that of its series. The mysqld must not be older than the tenants'. Empty: nothing is "
        'inspected.',
    ),
    cfg.StrOpt(
        'isolation',
        default='auto',
        choices=[
            ('auto', 'a virtual machine where one starts on this host, otherwise namespaces'),
            ('vm', 'a virtual machine; where none starts, nothing is inspected'),
            ('namespaces', 'namespaces of this host'),
        ],
        help='How an inspected server is kept apart from this host. In a virtual machine, the '
        "kernel of the machine reads the tenant's file system. In namespaces, the kernel of this "
        'host does, and a bug of its XFS is open to tenants. The service starts a virtual machine '
        'to see whether that works, and logs the choice.',
    ),
    cfg.StrOpt(
        'vm_image_directory',
        default='/var/lib/trove-ceph/inspection-image',
        help='Where "trove-ceph-manage storage inspection-image" makes the image of the virtual '
        'machine. Run it again after mysqld_roots, or a MySQL in it, or the kernel has changed.',
    ),
    cfg.StrOpt(
        'vm_accelerator',
        default='kvm',
        choices=[
            ('kvm', 'the processor runs the virtual machine'),
            ('tcg', 'QEMU emulates the processor, ten times slower; for tests'),
        ],
        help='How QEMU runs the virtual machine. Raise time_limit_sec for "tcg".',
    ),
    cfg.StrOpt(
        'directory',
        default='/var/lib/trove-ceph/verification',
        help='Where mount points, sockets and logs of inspections are made, and found again by the '
        'next start of the service when it was killed. Its path may have up to 60 characters.',
    ),
    cfg.IntOpt(
        'memory_mib',
        default=1024,
        min=512,
        max=65536,
        help='MiB of memory that one inspected server may take; a quarter is its buffer pool. '
        'Higher values recover faster after much work. As many inspections may run at once as '
        '[trove_ceph_storage] job_threads.',
    ),
    cfg.IntOpt(
        'first_uid',
        default=1_900_000_000,
        min=65536,
        max=4294900000,
        help='The first of 65536 user and group ids of this host that belong to nobody. Each '
        'inspection takes one of them, so that neither its server nor the files of '
        'the tenant have an owner that anything else on the host has. Ids that somebody has would '
        'let a server that was taken over end processes of that user.',
    ),
    cfg.IntOpt(
        'max_written_mib',
        default=65536,
        min=0,
        max=1073741824,
        help='MiB that one inspected server may write to its clone, which takes room in the pool '
        'until the inspection ends; 0 is no limit. A recovery writes less than the redo log is '
        'large, several times over at most. Beyond it the inspection ends without a verdict.',
    ),
    cfg.IntOpt(
        'mib_per_sec',
        default=0,
        min=0,
        max=102400,
        help='MiB that one inspection reads and writes in a second at most; 0 is no limit. Without '
        'one it takes what it gets, from databases on the same disks too.',
    ),
    cfg.IntOpt(
        'time_limit_sec',
        default=3600,
        min=30,
        max=604800,
        help='Seconds that one inspection may take as a whole. What was not checked by then is not '
        'held against the backup, but it does not count as verified.',
    ),
    cfg.BoolOpt(
        'deep',
        default=False,
        help='Check all tables instead of a sample. Reads all of the backup, however large.',
    ),
    cfg.IntOpt(
        'sample_tables',
        default=10,
        min=1,
        max=100000,
        help="How many of a tenant's tables are in a sample, chosen anew for each backup; the "
        "server's own tables always are.",
    ),
    cfg.IntOpt(
        'sample_mib',
        default=256,
        min=1,
        max=1048576,
        help="MiB that a sample reads of a tenant's tables, so that an inspection takes the same "
        'time at any size of the backup. Tables that fit into their share are checked as a whole; '
        'of larger ones both ends of each index are read.',
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Make the ``[trove_ceph_verification]`` options readable on ``conf``; may be repeated."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)
