# SPDX-License-Identifier: Apache-2.0
"""The session of the administrator whose credentials Trove's services have."""

from typing import Any

from trove.common import clients_admin


def get() -> Any:
    """Return the session of keystoneauth1 of ``[service_credentials]``, without connecting.

    :func:`.configuration.load` must have read Trove's configuration.
    """
    return clients_admin.get_keystone_session()
