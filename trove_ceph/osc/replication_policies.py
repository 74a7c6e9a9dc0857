# SPDX-License-Identifier: Apache-2.0
"""``openstack database replica policy``."""

import argparse
from typing import Any

from osc_lib import exceptions
from osc_lib.command import command

from trove_ceph.osc import base, replication_client

_SETTINGS = (
    'semi_sync',
    'reprovision_every_hours',
    'max_own_percent',
    'max_lag_sec',
    'replica_volume_type',
)
_NEVER = 'never because of this: 0; as the operator has set: default'


class _Source(base.DocstringHelp):
    """A command about the policy of a source."""

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument('source', metavar='<source>', help='ID or name of the source')
        return parser

    def api(self) -> replication_client.ReplicationApi:
        return replication_client.ReplicationApi(base.connection_of(self))


class ShowReplicationPolicy(_Source, command.ShowOne):
    """Show how the replicas of a source are kept

    A setting without a value is as the operator has set it; defaults shows those values.
    """

    def take_action(self, parsed_args: Any) -> base.Shown:
        api = self.api()
        return base.one(api.show_policy(api.instance_id(parsed_args.source)))


class SetReplicationPolicy(_Source, command.ShowOne):
    """Set how the replicas of a source are kept

    Settings without an option stay as they are. A replica that is promoted takes the policy over
    from its source.

    Examples
      A commit waits until one replica has received it:
        openstack database replica policy set shop --semi-sync

      Each replica gets a fresh clone of the source every week:
        openstack database replica policy set shop --reprovision-every-hours 168

      New replicas, and the fresh clones of others, are on a volume type:
        openstack database replica policy set shop --replica-volume-type iops-replica
    """

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--semi-sync',
            action=argparse.BooleanOptionalAction,
            help='Let each commit on the source wait until a replica has received it, so that it '
            'is not lost with the source; or do not. If no replica answers for some seconds, '
            'commits do not wait until one does',
        )
        for option, metavar, text in (
            (
                '--reprovision-every-hours',
                '<hours>',
                'Age in hours at which the clone of a replica is replaced by a fresh one',
            ),
            (
                '--max-own-percent',
                '<percent>',
                'Space that a replica does not share with its source, in percent of its size, '
                'above which its clone is replaced, at most once a day',
            ),
            (
                '--max-lag-sec',
                '<seconds>',
                'Lag in seconds above which the clone of a replica that falls behind more and more '
                'is replaced',
            ),
        ):
            parser.add_argument(option, type=_setting, metavar=metavar, help=f'{text} ({_NEVER})')
        parser.add_argument(
            '--replica-volume-type',
            metavar='<volume type>',
            help='Name of the volume type of new replicas, and of the fresh clones of others; a '
            'replica stays on its volume until it gets a fresh clone (as the operator has set: '
            'default)',
        )
        return parser

    def take_action(self, parsed_args: Any) -> base.Shown:
        given = {name: getattr(parsed_args, name) for name in _SETTINGS}
        values = {
            name: None if value == 'default' else value
            for name, value in given.items()
            if value is not None
        }
        if not values:
            raise exceptions.CommandError('nothing to set: give at least one of the options')
        api = self.api()
        return base.one(api.set_policy(api.instance_id(parsed_args.source), **values))


class UnsetReplicationPolicy(_Source, command.Command):
    """Remove the replication policy of a source; what the operator has set applies from then on"""

    def take_action(self, parsed_args: Any) -> None:
        api = self.api()
        api.delete_policy(api.instance_id(parsed_args.source))


def _setting(text: str) -> int | str:
    """Return a number, or the word for the operator's default."""
    if text == 'default':
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'{text!r} is neither a number nor "default"') from None
