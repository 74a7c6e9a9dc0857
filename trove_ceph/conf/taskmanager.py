# SPDX-License-Identifier: Apache-2.0
"""Options that trove-taskmanager reads from its own configuration, ``trove.conf``."""

from oslo_config import cfg

from trove_ceph.conf import storage
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
        help='The file that describes the storage tiers. Backups of volumes on the back ends of '
        'its volume types are taken by trove_ceph, all others by Trove. Guests are told what it '
        'promises to the volumes of their tier, and size MySQL by that. Read anew each time.',
    ),
    cfg.StrOpt(
        'quiesce',
        default=str(QuiesceLevel.NONE),
        choices=_LEVELS,
        help='How a server is held while the snapshot is made. none: not at all; the backup is '
        'what a power cut would leave, which InnoDB recovers. ddl: statements that change tables\' '
        'definitions wait (LOCK INSTANCE FOR BACKUP). freeze: all writes wait.',
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
        help='What becomes of a backup of a server whose settings make its level unsafe. refuse: '
        'it fails, and says which settings. raise: it is taken with freeze, which is recorded, '
        'unless that does not help either.',
    ),
    cfg.IntOpt(
        'quiesce_limit_sec',
        default=20,
        min=1,
        max=120,
        help='Seconds after which a server that is held goes on by itself, whatever has become of '
        'those who hold it; the backup then fails. Clients that write wait for as long at most.',
    ),
    cfg.BoolOpt(
        'copy_to_vault',
        default=False,
        help='Copy each backup to the vault soon after it was taken. All that changed since the '
        'copy before is read once, and the vault must have room for it. Copies can be asked for '
        'one by one, too.',
    ),
    cfg.StrOpt(
        'vault_tier',
        help='The tier of the tiers file that copies go to, which must have the purpose vault. '
        'Needed where there are several of those. After a change the next copy of each instance '
        'is complete again; copies elsewhere stay until their backups are deleted.',
    ),
    cfg.StrOpt(
        'verify',
        default=str(VerifyWhen.NEVER),
        choices=[str(which) for which in VerifyWhen],
        help='Which backups are verified soon after they were taken, by a server that is started '
        'from a clone. never: none, unless it is asked for. copied: those that were copied to the '
        'vault, from there. always: each. A verification reads what it checks, and takes memory '
        'and processors where trove-ceph-storage runs.',
    ),
    cfg.IntOpt(
        'copies_at_once',
        default=2,
        min=1,
        max=64,
        deprecated_name='jobs_at_once',
        help='How many backups each taskmanager has copied to the vault at once; others wait, and '
        'projects take turns. [trove_ceph_storage] job_threads limits what each copy of the '
        'storage service does.',
    ),
    cfg.IntOpt(
        'verifications_at_once',
        default=2,
        min=1,
        max=64,
        deprecated_name='jobs_at_once',
        help='How many backups each taskmanager has verified at once; others wait, and projects '
        'take turns. Copies do not wait for verifications of other backups, nor they for copies.',
    ),
    cfg.IntOpt(
        'copies_per_hour',
        default=0,
        min=0,
        max=100000,
        help='How many copies are started within an hour for one project, on all taskmanagers '
        'together; further ones wait. An attempt that failed counts. 0: any number.',
    ),
    cfg.IntOpt(
        'verifications_per_hour',
        default=0,
        min=0,
        max=100000,
        help='How many verifications are started within an hour for one project, on all '
        'taskmanagers together; further ones wait. An attempt that failed counts. 0: any number.',
    ),
    cfg.IntOpt(
        'vault_quota_gib',
        default=0,
        min=0,
        max=1_048_576,
        help='GiB, before replication, that the copies of one project may occupy in the vault. A '
        'copy that would take it beyond that is not made, its record says so, and it is tried '
        'again later. 0: no limit.',
    ),
    cfg.IntOpt(
        'policy_least_interval_min',
        default=15,
        min=1,
        max=1440,
        help='The least interval, in minutes, of a backup policy: the API refuses shorter ones, '
        'and policies that have a shorter one already are run with this one. Shorter intervals '
        'mean more snapshots, which each write to the volume pays for.',
    ),
    cfg.StrOpt(
        'restore_from',
        default='snapshot',
        choices=['snapshot', 'vault'],
        help='What new instances are made from. snapshot: the snapshot beside the volume of the '
        'instance that was backed up, and the copy in the vault where that is gone. vault: the '
        'copy, and the snapshot where there is none; what is restored reads from the vault until '
        'all of it was copied from there.',
    ),
    cfg.IntOpt(
        'heartbeat_interval_sec',
        default=5,
        min=1,
        max=30,
        help='Seconds between two heartbeats of a taskmanager: one transaction for all that it '
        'works on, and none when it works on nothing.',
    ),
    cfg.IntOpt(
        'claim_expiry_sec',
        default=45,
        min=15,
        max=3600,
        help='Seconds without a heartbeat after which the work of a taskmanager is taken over by '
        'another one: a backup that is being taken, copied, verified or deleted. A taskmanager '
        'that cannot write its heartbeat for four fifths of this time ends its work. Must be at '
        'least three times heartbeat_interval_sec. All taskmanagers must agree. A taskmanager '
        'takes over at once what an earlier process on its own host has left.',
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Make the options readable on ``conf``, the storage service's too; harmless when repeated."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)
    storage.register_transport(conf)
