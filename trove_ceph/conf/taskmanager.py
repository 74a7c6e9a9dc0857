# SPDX-License-Identifier: Apache-2.0
"""Options that trove-taskmanager reads from its own configuration, ``trove.conf``."""

from oslo_config import cfg

from trove_ceph.conf import failover, golden, guests, metrics, replacement, replication, storage
from trove_ceph.enums import QuiesceLevel, UnsafeAction, VerifyWhen

GROUP = cfg.OptGroup(
    'trove_ceph_backup',
    title='Backups on Ceph',
    help='How trove_ceph.taskmanager.manager.Manager takes backups. All taskmanagers must agree.',
)

_LEVELS = [str(level) for level in QuiesceLevel]

OPTS = [
    cfg.StrOpt(
        'tiers_file',
        default='/etc/trove-ceph/tiers.yaml',
        help='The file that describes the storage tiers. trove_ceph takes the backups of volumes '
        'on the back ends of its volume types, Trove takes all others. Guests get the IOPS that '
        'it promises to volumes of their tier, and size MySQL accordingly. Read again at each use.',
    ),
    cfg.StrOpt(
        'quiesce',
        default=str(QuiesceLevel.NONE),
        choices=_LEVELS,
        help='How a server is quiesced while its snapshot is created. none: not at all; the backup '
        'is what a power cut would leave, from which InnoDB recovers. ddl: statements that change '
        'table definitions wait (LOCK INSTANCE FOR BACKUP). freeze: all writes wait.',
    ),
    cfg.DictOpt(
        'quiesce_by_datastore',
        default={},
        help='Other levels for datastores, or for one version of a datastore: '
        '"mysql:ddl,mysql/8.4:freeze". A version has precedence over its datastore.',
    ),
    cfg.StrOpt(
        'unsafe_action',
        default=str(UnsafeAction.REFUSE),
        choices=[str(action) for action in UnsafeAction],
        help='What to do with a backup if the settings of the server make its level unsafe. '
        'refuse: it fails, and its error names the settings. raise: it is taken with freeze, '
        'which is recorded; it fails if freeze is unsafe too.',
    ),
    cfg.IntOpt(
        'quiesce_limit_sec',
        default=20,
        min=1,
        max=120,
        help='Seconds after which a quiesced server resumes by itself, even if the taskmanager has '
        'died; the backup then fails. This is the longest time that clients wait to write.',
    ),
    cfg.BoolOpt(
        'copy_to_vault',
        default=False,
        help='Copy each backup to the vault soon after it was taken. A copy reads once what '
        'changed since the previous copy, and the vault must have room for it. Tenants can also '
        'request single copies.',
    ),
    cfg.StrOpt(
        'vault_tier',
        help='The tier for copies, which must have the purpose vault. Required if several tiers '
        'have it. After a change the next copy of each instance is a full one; copies in the '
        'former vault stay until their backups are deleted.',
    ),
    cfg.StrOpt(
        'verify',
        default=str(VerifyWhen.NEVER),
        choices=[str(which) for which in VerifyWhen],
        help='Which backups are verified soon after they were taken, by a server that is started '
        'from a clone. never: none without a request. copied: those that were copied to the '
        'vault, from their copy. always: all. A verification reads the data that it checks, and '
        'needs memory and processors on the hosts of trove-ceph-storage.',
    ),
    cfg.IntOpt(
        'copies_at_once',
        default=2,
        min=1,
        max=64,
        deprecated_name='jobs_at_once',
        help='Number of backups that each taskmanager copies to the vault at once; others wait, '
        'and projects take turns. [trove_ceph_storage] job_threads limits the jobs of each copy '
        'of the storage service.',
    ),
    cfg.IntOpt(
        'verifications_at_once',
        default=2,
        min=1,
        max=64,
        deprecated_name='jobs_at_once',
        help='Number of backups that each taskmanager verifies at once; others wait, and projects '
        'take turns. Copies and verifications of different backups do not wait for each other.',
    ),
    cfg.IntOpt(
        'copies_per_hour',
        default=0,
        min=0,
        max=100000,
        help='Number of copies that all taskmanagers together start within an hour for one '
        'project; further ones wait. Failed attempts count. 0: no limit.',
    ),
    cfg.IntOpt(
        'verifications_per_hour',
        default=0,
        min=0,
        max=100000,
        help='Number of verifications that all taskmanagers together start within an hour for one '
        'project; further ones wait. Failed attempts count. 0: no limit.',
    ),
    cfg.IntOpt(
        'vault_quota_gib',
        default=0,
        min=0,
        max=1_048_576,
        help='GiB, before replication, that the copies of one project may occupy in the vault. A '
        'copy that would exceed it fails, with this reason in its record, and is retried later. '
        '0: no limit.',
    ),
    cfg.IntOpt(
        'policy_least_interval_min',
        default=15,
        min=1,
        max=1440,
        help='The shortest interval, in minutes, of a backup policy: the API refuses shorter ones, '
        'and existing policies with a shorter one run at this one. Shorter intervals mean more '
        'snapshots, which slow down writes to the volume.',
    ),
    cfg.StrOpt(
        'restore_from',
        default='snapshot',
        choices=['snapshot', 'vault'],
        help='The source of restored instances. snapshot: the snapshot of the original volume, or '
        'the copy in the vault if the snapshot is gone. vault: the copy, or the snapshot if there '
        'is no copy; a volume restored from the vault reads from there until it is flattened.',
    ),
    cfg.IntOpt(
        'heartbeat_interval_sec',
        default=5,
        min=1,
        max=30,
        help='Seconds between two heartbeats of a taskmanager. A heartbeat is one transaction for '
        'all its claims, and none if it has no claim.',
    ),
    cfg.IntOpt(
        'claim_expiry_sec',
        default=45,
        min=15,
        max=3600,
        help='Seconds without a heartbeat after which another taskmanager resumes the work of '
        'a taskmanager: the backups that it takes, copies, verifies or deletes. A taskmanager '
        'that cannot write its heartbeat for four fifths of this time stops its work. Must be at '
        'least three times heartbeat_interval_sec, and the same on all taskmanagers. A taskmanager '
        'resumes the work of an earlier process on its own host at once.',
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Make the options that a taskmanager reads readable on ``conf``; harmless when repeated."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)
    guests.register(conf)
    golden.register(conf)
    replacement.register(conf)
    failover.register(conf)
    replication.register(conf)
    metrics.register_taskmanager(conf)
    storage.register_transport(conf)
