# SPDX-License-Identifier: Apache-2.0
"""The commands that mend what the checks find, or show what to mend.

They stand in one place, so that a test can hold each against the program that it names.
"""

from collections.abc import Sequence

from trove_ceph.storage import fencing
from trove_ceph.trove_compat import window

CEPH_STATUS = 'ceph status'
CEPH_HEALTH = 'ceph health detail'
CEPH_VERSIONS = 'ceph versions'
MONITORS = 'ceph mon dump'
TIME_SYNC = 'ceph time-sync-status'
GROUPS = 'ceph pg ls-by-pool {pool}'
OSD_FILL = 'ceph osd df tree'
OSD_TREE = 'ceph osd tree'
AUTOSCALE = 'ceph osd pool autoscale-status'
BLOCKLIST = 'ceph osd blocklist ls'
BLOCKLIST_EXPIRY = f'ceph config set mon mon_osd_blocklist_default_expire {fencing.EXPIRE_SEC}'
MIN_COMPAT_CLIENT = 'ceph osd set-require-min-compat-client mimic'

TIERS_PLAN = 'trove-ceph-manage tiers plan'
TIERS_APPLY = 'trove-ceph-manage tiers apply'
TIERS_SHOW = 'trove-ceph-manage tiers show'
DB_VERSION = 'trove-ceph-manage db version'

VOLUME_SERVICES = 'openstack volume service list'
COMPUTE_SERVICES = 'openstack compute service list'
VOLUME_BACKENDS = 'openstack volume backend pool list --long'
MEASURE = 'trove-ceph-manage doctor --check promised-iops --measure'
ORPHANS = 'trove-ceph-manage gc list'
BUILD_GOLDEN_VOLUME = 'trove-ceph-manage golden-volumes build {pool} {version} {size_gib}'
DB_SYNC = 'trove-ceph-manage db sync'
KEYS = 'trove-ceph-manage storage keys show'
HELP = 'trove-ceph-manage doctor --help'
SHOW_INSTANCE = 'openstack database instance show {id}'
TAKE_BACKUP = 'openstack database backup take NAME --instance {id}'
SHOW_BACKUP = 'openstack database backup detail show {id}'
VERIFY_BACKUP = 'openstack database backup verify {id}'
RUN_POLICY = 'openstack database backup policy run {id}'
CREATE_POLICY = (
    'openstack database backup policy create NAME --instance {id} --every 1d --keep-last 7'
)
SHOW_POLICY = 'openstack database backup policy show {id}'
FLATTEN = 'trove-ceph-manage storage flatten {image}'
REPROVISION = 'openstack database replica reprovision {id}'
SET_PARAMETER = "openstack database configuration parameter set {id} '{parameters}'"

#: The program of the project's documents, in which the two options are described.
UPDATE_VERSION = (
    'trove-manage datastore_version_update ... '
    '--registry-ext trove_ceph.guestagent.manager.Manager '
    '--repl-strategy trove_ceph.guestagent.replication.CloneReplication'
)
PERMISSIONS = 'rabbitmqctl list_permissions -p trove-ceph'
TRASH = 'rbd --pool {pool} trash ls --long'
INSTALL = "pip install 'trove-ceph[server]'"
INSTALL_TROVE = f"pip install '{window.REQUIREMENT}'"


def edit(option: str, group: str, services: Sequence[str], only_while: str = '') -> str:
    """Return what mends an option, which is no command: each service may have a file of its own.

    :param services: those that read the option, at least one
    :param only_while: when it may be changed; empty: always
    """
    *others, last = services
    names = f'{", ".join(others)} and {last}' if others else last
    condition = f', only while {only_while}' if only_while else ''
    pronoun = 'them' if others else 'it'
    return f'edit [{group}] {option} of {names}{condition}, and restart {pronoun}'


def add_tier(pool: str) -> str:
    """Return what mends a tiers file that lacks a tier, which is no command."""
    return f'edit tiers_file: add a tier with pool {pool}; restart trove-ceph-storage'
