# SPDX-License-Identifier: Apache-2.0
"""The extensions that trove-api loads by the entry point group ``trove.api.extensions``."""

from trove.common import cfg, extensions

from trove_ceph.api import (
    details,
    failover_policies,
    failovers,
    instance_details,
    policies,
    replication,
    replication_policies,
    rules,
)
from trove_ceph.conf import replication as replication_conf
from trove_ceph.conf import taskmanager as taskmanager_conf
from trove_ceph.db import backups, replacements, replicas
from trove_ceph.db import failover_policies as db_failover_policies
from trove_ceph.db import policies as db_policies
from trove_ceph.db import replication_policies as db_replication_policies
from trove_ceph.trove_compat import check, hooks, strict_rpc

CONF = cfg.CONF


class BackupsOnCeph(extensions.ExtensionDescriptor):
    """Details of backups, and backup policies."""

    def get_name(self) -> str:
        return 'Backups on Ceph'

    def get_description(self) -> str:
        return 'Details of backups, their copies and verification, and backup policies'

    def get_alias(self) -> str:
        return 'TROVE-CEPH-BACKUPS'

    def get_namespace(self) -> str:
        return 'https://docs.openstack.org/trove_ceph/backups'

    def get_updated(self) -> str:
        return '2026-11-21T00:00:00-00:00'

    def get_resources(self) -> list[extensions.ResourceExtension]:
        _prepare()
        taskmanager_conf.register(CONF)
        options = CONF.trove_ceph_backup
        records, policy_store = backups.BackupStore(), db_policies.PolicyStore()
        return [
            extensions.ResourceExtension(
                '{tenant_id}/backup_details',
                details.DetailsController(records, policy_store),
                member_actions={'copy': 'POST', 'verify': 'POST'},
            ),
            extensions.ResourceExtension(
                '{tenant_id}/backup_policies',
                policies.PoliciesController(
                    policy_store, options.tiers_file, options.policy_least_interval_min
                ),
                member_actions={'run': 'POST'},
            ),
        ]


class Failovers(extensions.ExtensionDescriptor):
    """Failovers of instances, and failover policies."""

    def get_name(self) -> str:
        return 'Failovers'

    def get_description(self) -> str:
        return 'Failovers of instances to other servers, and failover policies'

    def get_alias(self) -> str:
        return 'TROVE-CEPH-FAILOVERS'

    def get_namespace(self) -> str:
        return 'https://docs.openstack.org/trove_ceph/failovers'

    def get_updated(self) -> str:
        return '2026-11-23T00:00:00-00:00'

    def get_resources(self) -> list[extensions.ResourceExtension]:
        _prepare()
        store = replacements.ReplacementStore()
        return [
            extensions.ResourceExtension(
                '{tenant_id}/failovers', failovers.FailoversController(store)
            ),
            extensions.ResourceExtension(
                '{tenant_id}/failover_policies',
                failover_policies.FailoverPoliciesController(
                    db_failover_policies.FailoverPolicyStore()
                ),
            ),
        ]


class Replication(extensions.ExtensionDescriptor):
    """Replicas as clones, and replication policies."""

    def get_name(self) -> str:
        return 'Replication'

    def get_description(self) -> str:
        return 'Status and re-provisioning of replicas, and replication policies'

    def get_alias(self) -> str:
        return 'TROVE-CEPH-REPLICATION'

    def get_namespace(self) -> str:
        return 'https://docs.openstack.org/trove_ceph/replication'

    def get_updated(self) -> str:
        return '2026-11-23T00:00:00-00:00'

    def get_resources(self) -> list[extensions.ResourceExtension]:
        _prepare()
        replication_conf.register(CONF)
        taskmanager_conf.register(CONF)
        path = CONF.trove_ceph_backup.tiers_file
        policy_store = db_replication_policies.ReplicationPolicyStore()
        return [
            extensions.ResourceExtension(
                '{tenant_id}/replication',
                replication.ReplicationController(replicas.ReplicaStore(), policy_store, path),
                member_actions={'reprovision': 'POST'},
            ),
            extensions.ResourceExtension(
                '{tenant_id}/replication_policies',
                replication_policies.ReplicationPoliciesController(policy_store, path),
            ),
        ]


class InstanceDetails(extensions.ExtensionDescriptor):
    """Details of instances."""

    def get_name(self) -> str:
        return 'Instances on Ceph'

    def get_description(self) -> str:
        return 'The storage tiers, the backups and the replication of instances'

    def get_alias(self) -> str:
        return 'TROVE-CEPH-INSTANCES'

    def get_namespace(self) -> str:
        return 'https://docs.openstack.org/trove_ceph/instances'

    def get_updated(self) -> str:
        return '2026-11-24T00:00:00-00:00'

    def get_resources(self) -> list[extensions.ResourceExtension]:
        _prepare()
        replication_conf.register(CONF)
        taskmanager_conf.register(CONF)
        controller = instance_details.InstanceDetailsController(
            backups.BackupStore(),
            replicas.ReplicaStore(),
            db_replication_policies.ReplicationPolicyStore(),
            CONF.trove_ceph_backup.tiers_file,
        )
        return [extensions.ResourceExtension('{tenant_id}/instance_details', controller)]


def _prepare() -> None:
    # Not at import, when Trove has not read its configuration yet.
    check.check(hooks.API)
    strict_rpc.use_for_answers()
    rules.register()
