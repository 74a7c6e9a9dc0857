# SPDX-License-Identifier: Apache-2.0
"""The context of requests that trove_ceph makes to Trove without a tenant's request."""

from typing import Any

from trove.common import cfg
from trove.common import context as trove_context

CONF = cfg.CONF


def of_project(project_id: str) -> Any:
    """Return a context that may load and delete the instances of a tenant.

    Trove's own context of its administrator may not.
    """
    return trove_context.TroveContext(
        user_id=CONF.service_credentials.username, project_id=project_id, is_admin=True
    )
