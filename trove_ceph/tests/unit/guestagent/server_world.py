# SPDX-License-Identifier: Apache-2.0
"""The server of an instance and the files on its host, as fakes."""

from unittest import mock

import fixtures

from trove_ceph.guestagent import init_file


class Files:
    """The files on the host that are accessed."""

    def __init__(self, test, paths):
        self.contents = dict.fromkeys(paths, '')
        self.owners, self.modes = {}, {}
        place = 'trove.guestagent.common.operating_system'
        for verb in ('exists', 'remove', 'read_file'):
            test.useFixture(fixtures.MonkeyPatch(f'{place}.{verb}', getattr(self, verb)))
        test.useFixture(
            fixtures.MonkeyPatch('trove_ceph.guestagent.flushed_files.replace', self.replace)
        )

    def exists(self, path, as_root):
        return path in self.contents

    def remove(self, path, force, recursive, as_root):
        self.contents.pop(path, None)

    def read_file(self, path, as_root):
        return self.contents[path]

    def replace(self, path, content, owner=None, mode=0o600):
        self.contents[path] = content
        self.owners[path], self.modes[path] = owner, mode


class App:
    """The application; its first start records its configuration."""

    database_service_uid = database_service_gid = 1001

    def __init__(self, files):
        self._files = files
        self.saved, self.settings = {}, {}
        self.starts = []
        #: What a server that is stopped has for its present start.
        self.stops = []
        self.error = self.stop_error = None
        self.channels = ()
        self.configuration_manager = mock.Mock()
        self.configuration_manager.apply_system_override = self._apply
        self.configuration_manager.remove_system_override = self._remove

    def _apply(self, options, change_id):
        self.settings[change_id] = options

    def _remove(self, change_id):
        self.settings.pop(change_id, None)

    def save_password(self, user, password):
        self.saved[user] = password

    def start_db(self, ds_version, command):
        options = self.settings.get(init_file.CHANGE_ID, {}).get('mysqld')
        self.starts.append((ds_version, command, options, dict(self._files.contents)))
        if self.error:
            raise self.error

    def stop_db(self):
        self.stops.append(self.settings.get(init_file.CHANGE_ID, {}).get('mysqld'))
        if self.stop_error:
            raise self.stop_error

    def open_connection(self, timeout_sec):
        cursor = mock.MagicMock()
        cursor.__enter__.return_value = cursor
        cursor.fetchall.return_value = self.channels
        cursor.fetchone.return_value = ('new-uuid', 'old-uuid:1-9')
        return mock.Mock(cursor=lambda: cursor)
