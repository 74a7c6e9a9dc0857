# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage storage keys``: make and replace the keys of the storage service."""

import abc
import argparse
from collections.abc import Sequence
from typing import Any

from trove_ceph import message_auth
from trove_ceph.cmd.manage import base, columns
from trove_ceph.storage_service import message_keys

_DEFAULT_KEY_FILE = '/etc/trove-ceph/storage-keys.json'
_EXIT_CODES = """\
exit status:
  0  it is done
  2  the command line is wrong
  3  the key file cannot be read or written, or (create) exists already
"""


class Group(base.Group):
    """Make and replace the keys that messages of the storage service are signed with.

    trove-ceph-storage and its callers (trove-taskmanager, trove-ceph-manage) sign their messages.
    All of them need the same key file, with mode 0600, owned by the user of the process or by root.
    Keep it secret: who has it can command the storage service. The file holds two keys. Messages
    are signed with the current key; the previous key is accepted, too.

    Rotating without an interruption:
      1. Run "trove-ceph-manage storage keys rotate" on a host of the service without callers, or on
         a copy of the file: a service that has only the old file refuses the new key.
      2. Copy the file to all hosts of trove-ceph-storage.
      3. Copy it to the hosts of the callers.
      4. Run "trove-ceph-manage storage keys retire", then copy the file again in the same order.
    No process has to be restarted: each reads the file again when it is replaced. Replace it by
    renaming, as "install" does, or "scp" to another name and "mv", so that no process reads half a
    file.

    When a key became known to others, rotate twice, or rotate and retire, before copying: callers
    get no answers until they have the file, and the known key is worthless at once.
    """

    exit_codes = _EXIT_CODES


class _KeysCommand(base.ShowOne):
    exit_codes = _EXIT_CODES

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--key-file',
            default=_DEFAULT_KEY_FILE,
            metavar='PATH',
            help='the key file (default: %(default)s)',
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return both keys by their ids and ages, without the secrets."""
        path = parsed_args.key_file
        keys = self.change(path)
        shown = [
            key and {'id': key.id, 'created_at': key.created_at}
            for key in (keys.current, keys.previous)
        ]
        return ('key_file', 'current', 'previous'), (path, *map(columns.of, shown))

    @abc.abstractmethod
    def change(self, path: str) -> message_auth.Keys:
        """Change the key file; return its keys."""


class Create(_KeysCommand):
    """Write a new file with one key; refuse if the file exists."""

    def change(self, path: str) -> message_auth.Keys:
        """Write the file."""
        return message_keys.create(path)


class Rotate(_KeysCommand):
    """Make a new key the current one, and the current key the previous one."""

    def change(self, path: str) -> message_auth.Keys:
        """Replace the file."""
        return message_keys.rotate(path)


class Retire(_KeysCommand):
    """Drop the previous key: all hosts have the new one, or the key became known to others."""

    def change(self, path: str) -> message_auth.Keys:
        """Replace the file."""
        return message_keys.retire(path)


class Show(_KeysCommand):
    """Show the keys by their ids and ages, without the secrets."""

    def change(self, path: str) -> message_auth.Keys:
        """Read the file."""
        return message_keys.KeyFile(path).load()
