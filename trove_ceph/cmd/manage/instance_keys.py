# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage instance-keys``: the keys of agents in Trove's database."""

import argparse
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from oslo_config import cfg

from trove_ceph import exceptions
from trove_ceph.cmd.manage import base, columns, database, options, taskmanager

_OPTION = 'inst_rpc_key_encr_key'
_SERVICES = 'trove-api, trove-conductor and trove-taskmanager'
_EXIT_CODES = """\
exit status:
  0  all keys are encrypted under the value of the configuration file
  1  some can be read neither with it nor with the previous value; nothing was changed
  2  the command line is wrong, or it was not accepted that the services are stopped; nothing was
     changed
  3  the database did not answer, or a file cannot be used
"""
_EXAMPLES = f"""\
The keys of the agents are encrypted under [DEFAULT] {_OPTION}. Trove's default of
it is published. To set another value while there are instances:
  1. Save the present value in a file that only you can read. Do without if it is Trove's default.
  2. Stop {_SERVICES} on all hosts. Databases go on; what
     agents report waits in the queues.
  3. Set the new value in the files of all of them, for instance of "openssl rand -hex 16".
  4. See what will be changed, and change it:
       trove-ceph-manage instance-keys reencrypt --previous-value-file /root/previous
       trove-ceph-manage instance-keys reencrypt --previous-value-file /root/previous \\
           --yes-services-are-stopped
  5. Start the services, and remove the file.
After an interruption run the command again. To go back, restore the present value in the files, and
run it with the new one as the previous one.

The keys themselves stay as they are: who has read them already knows them until their instances are
deleted.

"""


class Group(base.Group):
    """Replace the key that the keys of instances and of warm guests are encrypted under."""

    examples = _EXAMPLES
    exit_codes = _EXIT_CODES


class Reencrypt(base.ShowOne):
    """Encrypt the keys of all agents under the value that the configuration file has now.

    All of them are changed in one transaction. Without --yes-services-are-stopped it only shows how
    many. "trove-ceph-manage instance-keys --help" has all steps.
    """

    exit_codes = _EXIT_CODES

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--previous-value-file',
            metavar='PATH',
            help=f'a file with the value of [DEFAULT] {_OPTION} up to now; "-" is standard '
            "input (default: Trove's default)",
        )
        parser.add_argument(
            '--yes-services-are-stopped',
            action='store_true',
            help=f'change the keys: {_SERVICES} are stopped on all hosts',
        )
        options.add_taskmanager_files(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the number of keys by what was found, and the agents without a readable one."""
        files = parsed_args.config_file or options.trove_conf()
        with taskmanager.importing():
            from trove_ceph.db import transactions
            from trove_ceph.doctor import settings
            from trove_ceph.trove_adapter import stored_keys
        public = settings.PUBLIC_KEY_OF_KEYS
        current = _read_option(files, public)
        path = parsed_args.previous_value_file
        is_trial = not parsed_args.yes_services_are_stopped
        with database.connect(*files) as facade:
            found = stored_keys.reencrypt(
                transactions.Transactions(facade),
                public if path is None else _read_value(path),
                current,
                is_trial=is_trial,
            )
        unreadable = [
            f'{one.owner} {one.owner_id}' for one in found if one.under is stored_keys.Under.NEITHER
        ]
        to_change = sum(one.under is stored_keys.Under.PREVIOUS for one in found)
        if unreadable:
            self.exit_status = base.ExitStatus.DIFFERS
            self.app.LOG.error(
                'nothing was changed: the keys listed as unreadable were encrypted under another '
                'value than those of the configuration file and of --previous-value-file'
            )
        elif is_trial and to_change:
            self.failure = exceptions.ConsequencesNotAcceptedError(
                f'nothing was changed: stop {_SERVICES} on all hosts, and repeat this with '
                '--yes-services-are-stopped'
            )
        shown = {
            'reencrypted': 0 if is_trial or unreadable else to_change,
            'under_previous_value': to_change,
            'under_current_value': len(found) - to_change - len(unreadable),
            'unreadable': unreadable,
        }
        return tuple(shown), tuple(map(columns.of, shown.values()))


def _read_option(files: Sequence[str], public: str) -> str:
    """Return the value that the configuration files have.

    :raises InvalidConfigurationError: they cannot be read, or have Trove's default
    """
    conf = cfg.ConfigOpts()
    conf.register_opt(cfg.StrOpt(_OPTION, default=public, secret=True))
    try:
        conf([], default_config_files=list(files))
        value = conf[_OPTION]
    except cfg.Error as error:
        raise exceptions.InvalidConfigurationError(f'{", ".join(files)}: {error}') from error
    if not value or value == public:
        raise exceptions.InvalidConfigurationError(
            f'{", ".join(files)}: set [DEFAULT] {_OPTION} to the new value, which is not '
            "Trove's default, before the keys are encrypted under it"
        )
    return str(value)


def _read_value(path: str) -> str:
    """Return the value in a file.

    :raises InvalidConfigurationError: it cannot be read, or is empty
    """
    try:
        text = sys.stdin.read() if path == '-' else pathlib.Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise exceptions.InvalidConfigurationError(f'{path}: cannot be read: {error}') from error
    if not text.strip():
        raise exceptions.InvalidConfigurationError(f'{path}: is empty')
    return text.strip()
