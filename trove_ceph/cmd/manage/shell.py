# SPDX-License-Identifier: Apache-2.0
"""The application: its commands, its own options and its logging."""

import importlib.metadata
import logging

from cliff import app, commandmanager

_MODULES = 'trove_ceph.cmd.manage.'
#: Each command with its class. The first word is a group, which has a command of its own that
#: explains the group.
COMMANDS = {
    'db': 'db:Group',
    'db downgrade': 'db:Downgrade',
    'db sync': 'db:Sync',
    'db version': 'db:Version',
    'doctor': 'doctor:Doctor',
    'failover': 'failover:Group',
    'failover maintenance begin': 'failover:MaintenanceBegin',
    'failover maintenance end': 'failover:MaintenanceEnd',
    'failover status': 'failover:Status',
    'gc': 'gc:Group',
    'gc list': 'gc:List',
    'gc remove': 'gc:Remove',
    'golden-volumes': 'golden_volumes:Group',
    'golden-volumes build': 'golden_volumes:Build',
    'golden-volumes list': 'golden_volumes:List',
    'golden-volumes remove': 'golden_volumes:Remove',
    'guests': 'guests:Group',
    'guests drain': 'guests:Drain',
    'guests list': 'guests:List',
    'guests show': 'guests:Show',
    'hci': 'hci:Group',
    'hci check': 'hci:Check',
    'hci plan': 'hci:Plan',
    'hci render': 'hci_render:Render',
    'hci settings': 'hci_render:Settings',
    'instance-keys': 'instance_keys:Group',
    'instance-keys reencrypt': 'instance_keys:Reencrypt',
    'metrics': 'metrics:Metrics',
    'qos': 'qos:Group',
    'qos apply': 'qos:Apply',
    'qos check': 'qos:Check',
    'qos plan': 'qos:Plan',
    'replacements': 'replacements:Group',
    'replacements end': 'replacements:End',
    'replacements list': 'replacements:List',
    'replacements move-host': 'replacements_move:MoveHost',
    'replacements show': 'replacements:Show',
    'replicas': 'replicas:Group',
    'replicas flatten': 'replicas:Flatten',
    'replicas list': 'replicas:List',
    'replicas reprovision': 'replicas:Reprovision',
    'replicas show': 'replicas:Show',
    'size': 'size:Size',
    'storage': 'storage:Group',
    'storage cancel': 'storage:Cancel',
    'storage flatten': 'storage_images:Flatten',
    'storage images': 'storage_images:Images',
    'storage inspection-image': 'storage_inspection:InspectionImage',
    'storage jobs': 'storage:Jobs',
    'storage keys': 'storage_keys:Group',
    'storage keys create': 'storage_keys:Create',
    'storage keys retire': 'storage_keys:Retire',
    'storage keys rotate': 'storage_keys:Rotate',
    'storage keys show': 'storage_keys:Show',
    'storage remove-copies': 'storage_copies:RemoveCopies',
    'storage status': 'storage:Status',
    'storage unfence': 'storage_images:Unfence',
    'tiers': 'tiers:Group',
    'tiers apply': 'tiers:Apply',
    'tiers check': 'tiers:Check',
    'tiers import': 'tiers_import:Import',
    'tiers plan': 'tiers:Plan',
    'tiers show': 'tiers:Show',
}
_DESCRIPTION = (
    'Manage databases on Ceph. Each command, and each group of commands, has its own --help, with '
    'examples: trove-ceph-manage tiers --help'
)


class CommandManager(commandmanager.CommandManager):
    """The commands by name.

    A class is imported when its command is run. cliff's own manager, given a namespace of entry
    points, imports the classes of all commands at each start.
    """

    def __init__(self) -> None:
        super().__init__()
        for name, target in COMMANDS.items():
            self.commands[name] = importlib.metadata.EntryPoint(
                name, f'{_MODULES}{target}', 'trove_ceph.manage'
            )


class Shell(app.App):
    """``trove-ceph-manage``."""

    NAME = 'trove-ceph-manage'
    LOG = logging.getLogger(NAME)
    CONSOLE_MESSAGE_FORMAT = f'{NAME}: %(message)s'

    def __init__(self) -> None:
        super().__init__(
            description=_DESCRIPTION,
            version=importlib.metadata.version('trove-ceph'),
            command_manager=CommandManager(),
            deferred_help=True,
        )

    @property
    def is_quiet(self) -> bool:
        """Whether only results and errors are printed."""
        return self.options.verbose_level < self.DEFAULT_VERBOSE_LEVEL

    def configure_logging(self) -> None:
        """Print messages of the libraries with -v, and without it the command's own errors only.

        What the libraries log at an error they raise as well, and the command prints that.
        """
        super().configure_logging()
        console = logging.getLogger().handlers[-1]
        more = self.options.verbose_level - self.DEFAULT_VERBOSE_LEVEL
        if more <= 0:
            console.addFilter(logging.Filter(self.NAME))
        else:
            console.setLevel(logging.INFO if more == 1 else logging.DEBUG)

    def interact(self) -> None:
        """Refuse a command line without a command, instead of asking for commands."""
        self.parser.prog = self.NAME
        self.parser.error('name a command; "trove-ceph-manage --help" lists them')
