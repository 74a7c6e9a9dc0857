# SPDX-License-Identifier: Apache-2.0
"""The default policies of the API, which operators override in Trove's policy file."""

from typing import Any

from oslo_policy import policy as oslo_policy

_BASE = '/v1.0/{account_id}'
PATH_DETAILS = f'{_BASE}/backup_details'
PATH_INSTANCES = f'{_BASE}/instance_details'
PATH_POLICIES = f'{_BASE}/backup_policies'
PATH_FAILOVERS = f'{_BASE}/failovers'
PATH_FAILOVER_POLICIES = f'{_BASE}/failover_policies'
PATH_REPLICATION = f'{_BASE}/replication'
PATH_REPLICATION_POLICIES = f'{_BASE}/replication_policies'
_OWNER = 'rule:admin_or_owner'
_ADMIN = 'rule:admin'


def _rule(
    name: str, check: str, description: str, method: str, path: str
) -> oslo_policy.DocumentedRuleDefault:
    operations: Any = [{'method': method, 'path': path}]
    return oslo_policy.DocumentedRuleDefault(name, check, description, operations)


def list_rules() -> list[oslo_policy.DocumentedRuleDefault]:
    """Return the rules; the rules that they refer to are Trove's."""
    return [
        *_of_backups(),
        *_of_instances(),
        *_of_failovers(),
        *_of_failover_policies(),
        *_of_replication(),
        *_of_replication_policies(),
    ]


def _of_backups() -> list[oslo_policy.DocumentedRuleDefault]:
    detail, policy = f'{PATH_DETAILS}/{{backup}}', f'{PATH_POLICIES}/{{policy}}'
    return [
        _rule('backup_detail:index', _OWNER, 'List details of backups.', 'GET', PATH_DETAILS),
        _rule(
            'backup_detail:index:all_projects',
            _ADMIN,
            'List details of backups of all projects.',
            'GET',
            PATH_DETAILS,
        ),
        _rule('backup_detail:show', _OWNER, 'Show details of a backup.', 'GET', detail),
        _rule(
            'backup_detail:show:places',
            _ADMIN,
            'Show the Ceph pools and images of a backup.',
            'GET',
            detail,
        ),
        _rule(
            'backup_detail:create',
            _OWNER,
            'Take a backup, and choose how the MySQL server is quiesced.',
            'POST',
            PATH_DETAILS,
        ),
        _rule(
            'backup_detail:copy',
            _OWNER,
            'Copy a backup to the vault.',
            'POST',
            f'{detail}/copy',
        ),
        _rule('backup_detail:verify', _OWNER, 'Verify a backup.', 'POST', f'{detail}/verify'),
        _rule('backup_policy:index', _OWNER, 'List backup policies.', 'GET', PATH_POLICIES),
        _rule(
            'backup_policy:index:all_projects',
            _ADMIN,
            'List backup policies of all projects.',
            'GET',
            PATH_POLICIES,
        ),
        _rule('backup_policy:show', _OWNER, 'Show a backup policy.', 'GET', policy),
        _rule(
            'backup_policy:create',
            _OWNER,
            'Create a backup policy for an instance.',
            'POST',
            PATH_POLICIES,
        ),
        _rule(
            'backup_policy:update',
            _OWNER,
            'Change a backup policy of an instance.',
            'PATCH',
            policy,
        ),
        _rule(
            'backup_policy:delete',
            _OWNER,
            'Delete a backup policy of an instance.',
            'DELETE',
            policy,
        ),
        _rule(
            'backup_policy:run',
            _OWNER,
            'Take a backup by the policy of an instance now.',
            'POST',
            f'{policy}/run',
        ),
        _rule(
            'backup_policy:operate',
            _ADMIN,
            'See, create, change, delete and run backup policies for tiers and datastores.',
            'POST',
            PATH_POLICIES,
        ),
    ]


def _of_instances() -> list[oslo_policy.DocumentedRuleDefault]:
    return [
        _rule('instance_detail:index', _OWNER, 'List details of instances.', 'GET', PATH_INSTANCES),
        _rule(
            'instance_detail:index:all_projects',
            _ADMIN,
            'List details of instances of all projects.',
            'GET',
            PATH_INSTANCES,
        ),
        _rule(
            'instance_detail:show',
            _OWNER,
            'Show details of an instance.',
            'GET',
            f'{PATH_INSTANCES}/{{instance}}',
        ),
    ]


def _of_failovers() -> list[oslo_policy.DocumentedRuleDefault]:
    failover = f'{PATH_FAILOVERS}/{{failover}}'
    return [
        _rule('failover:index', _OWNER, 'List failovers.', 'GET', PATH_FAILOVERS),
        _rule(
            'failover:index:all_projects',
            _ADMIN,
            'List failovers of all projects.',
            'GET',
            PATH_FAILOVERS,
        ),
        _rule('failover:show', _OWNER, 'Show a failover.', 'GET', failover),
        _rule(
            'failover:show:servers',
            _ADMIN,
            'Show the Nova servers, the hosts and the volume of a failover.',
            'GET',
            failover,
        ),
        _rule(
            'failover:create',
            _OWNER,
            'Request a failover of an instance.',
            'POST',
            PATH_FAILOVERS,
        ),
        _rule(
            'failover:create:force',
            _OWNER,
            'Request a failover of an instance that is healthy.',
            'POST',
            PATH_FAILOVERS,
        ),
    ]


def _of_failover_policies() -> list[oslo_policy.DocumentedRuleDefault]:
    path, policy = PATH_FAILOVER_POLICIES, f'{PATH_FAILOVER_POLICIES}/{{policy}}'
    return [
        _rule('failover_policy:index', _OWNER, 'List failover policies.', 'GET', path),
        _rule(
            'failover_policy:index:all_projects',
            _ADMIN,
            'List failover policies of all projects.',
            'GET',
            path,
        ),
        _rule('failover_policy:show', _OWNER, 'Show a failover policy.', 'GET', policy),
        _rule(
            'failover_policy:create',
            _OWNER,
            'Create a failover policy for an instance.',
            'POST',
            path,
        ),
        _rule(
            'failover_policy:update',
            _OWNER,
            'Change a failover policy of an instance.',
            'PATCH',
            policy,
        ),
        _rule(
            'failover_policy:delete',
            _OWNER,
            'Delete a failover policy of an instance.',
            'DELETE',
            policy,
        ),
        _rule(
            'failover_policy:operate',
            _ADMIN,
            'See, create, change and delete failover policies for datastores.',
            'POST',
            path,
        ),
    ]


def _of_replication() -> list[oslo_policy.DocumentedRuleDefault]:
    instance = f'{PATH_REPLICATION}/{{instance}}'
    return [
        _rule('replication:index', _OWNER, 'List replicas.', 'GET', PATH_REPLICATION),
        _rule(
            'replication:index:all_projects',
            _ADMIN,
            'List replicas of all projects.',
            'GET',
            PATH_REPLICATION,
        ),
        _rule(
            'replication:show',
            _OWNER,
            'Show a replica, or a source and its replicas.',
            'GET',
            instance,
        ),
        _rule(
            'replication:show:volumes',
            _ADMIN,
            'Show the volumes of a replica.',
            'GET',
            instance,
        ),
        _rule(
            'replication:reprovision',
            _OWNER,
            'Request that a replica gets a fresh clone of its source.',
            'POST',
            f'{instance}/reprovision',
        ),
    ]


def _of_replication_policies() -> list[oslo_policy.DocumentedRuleDefault]:
    policy = f'{PATH_REPLICATION_POLICIES}/{{instance}}'
    return [
        _rule(
            'replication_policy:show',
            _OWNER,
            'Show the replication policy of a source.',
            'GET',
            policy,
        ),
        _rule(
            'replication_policy:update',
            _OWNER,
            'Set the replication policy of a source.',
            'PUT',
            policy,
        ),
        _rule(
            'replication_policy:delete',
            _OWNER,
            'Delete the replication policy of a source.',
            'DELETE',
            policy,
        ),
    ]


def register() -> None:
    """Register the rules with Trove; harmless when repeated."""
    from trove.common import policy as trove_policy

    enforcer = trove_policy.get_enforcer()
    for rule in list_rules():
        if rule.name not in enforcer.registered_rules:
            enforcer.register_default(rule)
