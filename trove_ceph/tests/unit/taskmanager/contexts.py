# SPDX-License-Identifier: Apache-2.0
"""The contexts with which Trove's API calls the taskmanager."""

from trove.common import context as trove_context


class ContextMixin:
    """For tests that have a ``world``."""

    def context(self, kind):
        created = trove_context.TroveContext(project_id=self.world.project, user_id='user')
        created.notification = kind(
            created,
            request_id='request',
            tenant_id=self.world.project,
            client_ip='192.0.2.1',
            server_ip='192.0.2.2',
            server_type='taskmanager',
        )
        return created
