# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage storage keys``: make and replace the keys of the storage service."""

import argparse
import json

from trove_ceph.cmd.manage.cli_base import CommandGroup, add_format
from trove_ceph.storage_service import message_keys

OK = 0
DEFAULT_KEY_FILE = '/etc/trove-ceph/storage-keys.json'
_TEACHING = """\
Make or replace the keys that trove-ceph-storage and its callers (trove-taskmanager,
trove-ceph-manage) sign their messages with. All of them need the same file, with mode 0600, owned
by the user of the process or by root. Nobody but them may have it: who has it can command the
storage service. The file holds two keys. Messages are signed with the current key; the previous one
is accepted, too.

  create   write a new file with one key; refused where there is one
  rotate   make a new key the current one, and the current one the previous
  retire   drop the previous key, such as after everybody has the new one, or when it became known
  show     list the keys by their ids and ages, without the secrets

Rotating without an interruption:
  1. trove-ceph-manage storage keys rotate, on a host of the service without callers or on a copy
     of the file: a service that has only the old file refuses the new key
  2. copy the file to the hosts of trove-ceph-storage, all of them
  3. copy it to the hosts of the callers
  4. trove-ceph-manage storage keys retire, then copy the file again in the same order
Nothing has to be restarted: the file is read again when it is replaced. Replace it by renaming, as
"install" and "scp" to another name and "mv" do, so that nobody reads half a file.

When a key became known to others, rotate twice, or rotate and retire, before copying: callers get
no answers until they have the file, and the known key is worthless at once.

"""


def add_verb(area: CommandGroup) -> None:
    """Add ``keys`` to the area ``storage``."""
    verb = area.add_verb('keys', _keys, 'make or replace the keys that messages are signed with')
    verb.description = _TEACHING
    verb.add_argument('action', choices=sorted(_ACTIONS), help='what to do with the key file')
    verb.add_argument(
        '--key-file', default=DEFAULT_KEY_FILE, metavar='PATH', help='default: %(default)s'
    )
    add_format(verb)


def _show(path: str) -> message_keys.Keys:
    return message_keys.KeyFile(path).load()


_ACTIONS = {
    'create': message_keys.create,
    'rotate': message_keys.rotate,
    'retire': message_keys.retire,
    'show': _show,
}


def _keys(arguments: argparse.Namespace) -> int:
    keys = _ACTIONS[arguments.action](arguments.key_file)
    listed = {'current': keys.current, 'previous': keys.previous}
    if arguments.format == 'json':
        content = {
            name: key and {'id': key.id, 'created_at': key.created_at}
            for name, key in listed.items()
        }
        print(json.dumps({'key_file': arguments.key_file, **content}, indent=2))
        return OK
    for name, key in listed.items():
        print(f'{name}: {f"{key.id}, made {key.created_at}" if key else "none"}')
    return OK
