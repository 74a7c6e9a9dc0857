# SPDX-License-Identifier: Apache-2.0
"""The session of the administrator whose credentials Trove's services have."""

from typing import Any

import keystoneauth1.session
from trove.common import clients_admin

#: How long a request waits for an answer, or for more of it. Trove's session waits for ever: a
#: service that accepts a request and never answers would stop an operation whose claim is renewed,
#: so that no other process continues it. HAProxy before the services gives up after a minute as
#: well, in the usual deployments, so that no answer that takes longer is lost by this.
TIMEOUT_SEC = 60


def get() -> Any:
    """Return a session of keystoneauth1 for ``[service_credentials]``, without connecting.

    It shares the token and the connections of Trove's own session, which it does not change.
    Trove's clients get such a session in :mod:`.limited_clients`. A request that is not answered in
    time raises keystoneauth1.exceptions.ConnectTimeout. :func:`.configuration.load` must have read
    Trove's configuration.
    """
    shared = clients_admin.get_keystone_session()
    return keystoneauth1.session.Session(
        shared.auth, shared.session, verify=shared.verify, timeout=TIMEOUT_SEC
    )
