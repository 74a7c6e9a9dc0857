# SPDX-License-Identifier: Apache-2.0
"""The contexts of requests that trove_ceph makes to Trove."""

from typing import Any

from trove.common import cfg
from trove.common import context as trove_context

CONF = cfg.CONF


def of_project(project_id: str | None) -> Any:
    """Return a context without a tenant's request that may load and delete a tenant's instances.

    Trove's own context of its administrator may not.
    """
    return trove_context.TroveContext(
        user_id=CONF.service_credentials.username, project_id=project_id, is_admin=True
    )


def copy_for(context: Any, instance_id: str) -> Any:
    """Return a copy of the context of a request, for one of the instances that it creates.

    Each thread needs its own: while Trove casts to a guest, it changes the notification of the
    context.
    """
    own = trove_context.TroveContext.from_dict(context.to_dict())
    own.notification.payload['instance_id'] = instance_id
    return own
