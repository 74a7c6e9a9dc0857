# SPDX-License-Identifier: Apache-2.0
"""The accounts of the server, which its tenant changes on a source only."""

from trove.guestagent.datastore.mysql import service as mysql_service

from trove_ceph import exceptions
from trove_ceph.guestagent import read_only


class Accounts(mysql_service.MySqlAdmin):
    """Trove's accounts; a server that refuses writes refuses to set a password.

    It refuses before the server does: Trove logs a statement that fails, with its password.
    """

    def enable_root(self, root_password=None):
        """Enable root, and return it with its password."""
        self._check_accepts_writes()
        return super().enable_root(root_password)

    def disable_root(self):
        """Give root an unknown password."""
        self._check_accepts_writes()
        super().disable_root()

    def create_users(self, users):
        """Create users."""
        self._check_accepts_writes()
        super().create_users(users)

    def change_passwords(self, users):
        """Change the passwords of users."""
        self._check_accepts_writes()
        super().change_passwords(users)

    def update_attributes(self, username, hostname, user_attrs):
        """Change name, host or password of a user."""
        self._check_accepts_writes()
        super().update_attributes(username, hostname, user_attrs)

    def _check_accepts_writes(self):
        if read_only.is_configured_replica(self.mysql_app):
            raise exceptions.UnsafeSettingsError(
                'the instance is a replica, or was just rebuilt, and refuses writes: repeat the '
                'request on its source, or later'
            )
        if read_only.is_configured_read_only(self.mysql_app):
            raise exceptions.UnsafeSettingsError(
                'the instance refuses writes, since one of its replicas is being promoted: repeat '
                'the request on the source when that has ended'
            )
