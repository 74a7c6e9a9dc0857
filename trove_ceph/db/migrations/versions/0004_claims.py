# SPDX-License-Identifier: Apache-2.0
"""One mechanism for claims and heartbeats; separate queues for copies and verifications."""

import sqlalchemy as sa
from alembic import op

from trove_ceph.db import schema_changes

revision = '0004'
down_revision = '0003'

_BACKUPS = 'trove_ceph_backups'
_RUNS = 'trove_ceph_policy_runs'
_WORKER_LENGTH = 255


def _claim_columns():
    return (
        sa.Column('claim_role', sa.String(16)),
        sa.Column('claimed_by', sa.String(255)),
        sa.Column('claim_token', sa.String(32)),
        sa.Column('heartbeat_at', sa.DateTime),
    )


def upgrade():
    queue_columns = (
        sa.Column('copy_failures', sa.Integer),
        sa.Column('copy_retry_at', sa.DateTime),
        sa.Column('verify_failures', sa.Integer),
        sa.Column('verify_retry_at', sa.DateTime),
    )
    schema_changes.ensure_columns(_BACKUPS, *_claim_columns(), *queue_columns)
    schema_changes.ensure_columns(_RUNS, *_claim_columns())
    schema_changes.ensure_index('ix_trove_ceph_backups_claim_token', _BACKUPS, ['claim_token'])
    # The first column to go: without it, an earlier run has carried over.
    if schema_changes.has_column(_BACKUPS, 'worker'):
        _carry_over()
    schema_changes.drop_columns(_BACKUPS, 'worker', 'seen_at', 'failures', 'retry_at')
    schema_changes.drop_columns(_RUNS, 'seen_at')
    schema_changes.ensure_table(
        'trove_ceph_job_starts',
        sa.Column('number', sa.Integer, primary_key=True),
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.Column('backup_id', sa.String(36), nullable=False),
        sa.Column('role', sa.String(16), nullable=False),
        sa.Column('started_at', sa.DateTime, nullable=False),
        sqlite_autoincrement=True,
    )
    schema_changes.ensure_index(
        'ix_trove_ceph_job_starts_started_at', 'trove_ceph_job_starts', ['started_at']
    )


def _carry_over():
    """Turn the names of workers, whose suffix is their role, into claims.

    Workers of the earlier release must not run any more. They do not know the tokens, so these
    claims expire, and workers of this release resume their work.
    """
    backups = sa.table(
        _BACKUPS,
        *(
            sa.column(name)
            for name in (
                *('backup_id', 'state', 'worker', 'seen_at', 'failures', 'retry_at'),
                *('claim_role', 'claimed_by', 'claim_token', 'heartbeat_at'),
                *('copy_wanted_at', 'verify_wanted_at', 'copy_failures', 'copy_retry_at'),
                *('verify_failures', 'verify_retry_at'),
            )
        ),
    )
    worker = backups.c.worker
    of_queue = worker.like('%:wishes')
    copies = sa.or_(backups.c.copy_wanted_at.isnot(None), backups.c.verify_wanted_at.is_(None))
    role = sa.case(
        (worker.like('%:taking'), 'take'),
        (sa.and_(of_queue, copies), 'copy'),
        (of_queue, 'verify'),
        else_='delete',
    )
    is_claimed = worker.isnot(None)
    op.execute(
        sa.update(backups)
        .where(is_claimed)
        .values(
            claim_role=role,
            # ':taking' and ':wishes' have the same length.
            claimed_by=sa.case(
                (sa.or_(worker.like('%:taking'), of_queue), _without_suffix(worker)),
                else_=worker,
            ),
            claim_token=sa.literal('of the release before'),
        )
    )
    op.execute(sa.update(backups).values(heartbeat_at=backups.c.seen_at))
    # Failures of both were counted together. They belong to the one that is still requested.
    for name, is_requested in (
        ('copy', backups.c.copy_wanted_at.isnot(None)),
        (
            'verify',
            sa.and_(backups.c.copy_wanted_at.is_(None), backups.c.verify_wanted_at.isnot(None)),
        ),
    ):
        op.execute(
            sa.update(backups)
            .where(is_requested)
            .values(
                {
                    f'{name}_failures': backups.c.failures,
                    f'{name}_retry_at': backups.c.retry_at,
                }
            )
        )
    runs = sa.table(_RUNS, sa.column('seen_at'), sa.column('heartbeat_at'))
    op.execute(sa.update(runs).values(heartbeat_at=runs.c.seen_at))


def _without_suffix(worker):
    return sa.func.substr(worker, 1, sa.func.length(worker) - len(':taking'))


def downgrade():
    schema_changes.drop_tables('trove_ceph_job_starts')
    schema_changes.ensure_columns(
        _BACKUPS,
        sa.Column('worker', sa.String(255)),
        sa.Column('seen_at', sa.DateTime),
        sa.Column('failures', sa.Integer),
        sa.Column('retry_at', sa.DateTime),
    )
    schema_changes.ensure_columns(_RUNS, sa.Column('seen_at', sa.DateTime))
    # The first column to go: without it, an earlier run has carried back.
    if schema_changes.has_column(_BACKUPS, 'claim_role'):
        _carry_back()
    schema_changes.ensure_not_null(_RUNS, sa.Column('seen_at', sa.DateTime))
    schema_changes.drop_index('ix_trove_ceph_backups_claim_token', _BACKUPS)
    claim = [column.name for column in _claim_columns()]
    queues = ('copy_failures', 'copy_retry_at', 'verify_failures', 'verify_retry_at')
    schema_changes.drop_columns(_BACKUPS, *claim, *queues)
    schema_changes.drop_columns(_RUNS, *claim)


def _carry_back():
    """Turn claims into names of workers whose suffix is their role."""
    backups = sa.table(
        _BACKUPS,
        *(
            sa.column(name, sa.String(255))
            for name in ('worker', 'claim_role', 'claimed_by', 'seen_at', 'heartbeat_at')
        ),
        *(
            sa.column(name)
            for name in (
                *('failures', 'retry_at', 'copy_wanted_at', 'copy_failures', 'copy_retry_at'),
                *('verify_failures', 'verify_retry_at'),
            )
        ),
    )
    name = sa.func.substr(backups.c.claimed_by, 1, _WORKER_LENGTH - len(':taking'))
    wants_copy = backups.c.copy_wanted_at.isnot(None)
    op.execute(
        sa.update(backups).values(
            seen_at=backups.c.heartbeat_at,
            worker=sa.case(
                (backups.c.claim_role == 'take', name.concat(':taking')),
                (backups.c.claim_role.in_(('copy', 'verify')), name.concat(':wishes')),
                else_=backups.c.claimed_by,
            ),
            failures=sa.case(
                (wants_copy, backups.c.copy_failures), else_=backups.c.verify_failures
            ),
            retry_at=sa.case(
                (wants_copy, backups.c.copy_retry_at), else_=backups.c.verify_retry_at
            ),
        )
    )
    runs = sa.table(_RUNS, *map(sa.column, ('seen_at', 'heartbeat_at', 'due_at')))
    op.execute(sa.update(runs).values(seen_at=sa.func.coalesce(runs.c.heartbeat_at, runs.c.due_at)))
