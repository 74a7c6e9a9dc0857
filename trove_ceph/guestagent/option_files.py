# SPDX-License-Identifier: Apache-2.0
"""Trove's files of options beside my.cnf, which are complete after a crash."""

import typing
from collections.abc import Mapping

from trove.guestagent.common import configuration, guestagent_utils

from trove_ceph.guestagent import flushed_files

#: MySQL reads them in its container.
MODE = 0o644


class OptionFiles(configuration.ImportOverrideStrategy):
    """Trove's strategy of a file for each change of options.

    Trove writes into a file that exists. A crash would leave it empty, and MySQL would start
    without the options.
    """

    def apply(self, group_name, change_id, options):
        """Extend a file, or create it."""
        if self.exists(group_name, change_id):
            options = guestagent_utils.update_dict(options, self.get(group_name, change_id))
        self.replace(group_name, change_id, options)

    def replace(self, group_name: str, change_id: str, options: Mapping[str, typing.Any]) -> None:
        """Replace a file as a whole, or create it."""
        self._initialize_import_directory()
        path = self._find_revision_file(group_name, change_id)
        if path is None:
            name = f'{group_name}-{self._get_last_file_index(group_name) + 1:03d}-{change_id}'
            path = guestagent_utils.build_file_path(self._revision_dir, name, self._revision_ext)
        self.write(path, self._codec.serialize(options))

    def write(self, path: str, text: str) -> None:
        """Replace a file of options, such as the base file, or create it."""
        owner = (int(self._owner), int(self._group))
        flushed_files.replace(path, text, owner, MODE, needs_root=self._requires_root)

    def remove(self, group_name, change_id=None):
        """Remove a file, or those of a group; idempotent."""
        super().remove(group_name, change_id)
        flushed_files.flush_directory(self._revision_dir)
