# SPDX-License-Identifier: Apache-2.0
"""What the database of an instance reports by Trove's rules, and what is wrong with it."""

from typing import Any

from trove.instance import models as instance_models
from trove.instance.service_status import ServiceStatus, ServiceStatuses

from trove_ceph.api import views

#: What it means that an agent reports a status, while the cloud does nothing with the instance.
_BAD = {
    ServiceStatuses.BLOCKED.code: 'the database does not answer its agent',
    ServiceStatuses.PAUSED.code: 'the database is paused',
    ServiceStatuses.SHUTDOWN.code: 'the database does not run',
    ServiceStatuses.CRASHED.code: 'the database has crashed, and does not run',
    ServiceStatuses.FAILED.code: 'the database could not be started',
    ServiceStatuses.UNKNOWN.code: 'its agent cannot tell whether the database runs',
    ServiceStatuses.DELETED.code: 'the database is deleted',
    ServiceStatuses.RESTART_REQUIRED.code: 'some of its settings take effect when it is restarted',
}
_SEE = '"openstack database instance show" has its fault, if there is one'


def status_of(row: Any, service: Any) -> ServiceStatus | None:
    """Return the status of a database as Trove shows it: an error if its agent is silent.

    :param row: Trove's row of the instance
    :param service: Trove's row of the status that the agent last reported; None: it never did
    """
    if service is None:
        return None
    # It changes what is in memory alone.
    instance_models.update_service_status(row.task_status, service, row.id)
    status: ServiceStatus = service.status
    return status


def describe(row: Any, service: Any) -> str | None:
    """Return what is wrong with an instance and its database; None: nothing is.

    Nothing is wrong with a database that does not run while the cloud works on its instance.
    """
    task = row.task_status
    if task.is_error:
        return f'an operation has failed: {task.db_text.rstrip(".")}; {_SEE}'
    if task != instance_models.InstanceTasks.NONE:
        return None
    status = status_of(row, service)
    if status is None:
        return 'its agent has never reported'
    if status == ServiceStatuses.FAILED_TIMEOUT_GUESTAGENT:
        return (
            f'its agent has not reported since {views.timestamp(service.updated_at)}, so that the '
            'state of the database is not known; if it does not answer, have the instance fail over'
        )
    if status.code in _BAD:
        return f'{_BAD[status.code]}; {_SEE}'
    return None
