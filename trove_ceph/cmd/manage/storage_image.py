# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage storage inspection-image``: build the image of virtual machines."""

import argparse
import json
from pathlib import Path

from oslo_config import cfg

from trove_ceph import exceptions
from trove_ceph.cmd.manage.cli_base import STORAGE_CONF, CommandGroup, add_format, add_option
from trove_ceph.conf import verification
from trove_ceph.verification import report, vm_image

OK = 0
_DESCRIPTION = """\
Build the virtual machine image in which trove-ceph-storage inspects backups: a kernel, an initramfs
and an image of each root file system in [trove_ceph_verification] mysqld_roots. The command writes
it to vm_image_directory, and only builds what has changed. Inspections that run keep their files.

Run it on each host of trove-ceph-storage, as root, and again after a new kernel or MySQL is
installed; then restart the service. It needs busybox-static, kmod and squashfs-tools.

"""


def add_verb(area: CommandGroup, default_config: str) -> None:
    """Add ``inspection-image`` to the area ``storage``."""
    verb = area.add_verb(
        'inspection-image', _build, 'build the virtual machine image of inspections'
    )
    verb.description = _DESCRIPTION
    verb.add_argument(
        '--kernel',
        type=Path,
        metavar='FILE',
        help='the kernel (default: the newest one for clouds in /boot, else the newest)',
    )
    verb.add_argument(
        '--modules',
        type=Path,
        metavar='DIRECTORY',
        help='the modules of --kernel (default: its directory in /lib/modules)',
    )
    add_option(
        verb,
        '--config-file',
        STORAGE_CONF,
        default_config,
        'the file with [trove_ceph_verification]',
    )
    add_format(verb)


def _build(arguments: argparse.Namespace) -> int:
    settings = _read_settings(arguments.config_file)
    kernel, modules = _find_kernel(arguments)
    roots = tuple(sorted(set(settings.roots.values())))
    lines: list[str] = []
    image = vm_image.build(
        settings.vm_image_directory, vm_image.Sources(kernel, modules, roots), lines.append
    )
    if arguments.format == 'json':
        content = {
            'directory': str(settings.vm_image_directory),
            'release': image.release,
            'roots': {root: str(file) for root, file in image.roots.items()},
            'done': lines,
        }
        print(json.dumps(content, indent=2))
    else:
        print('\n'.join([*lines, f'The image is in {settings.vm_image_directory}.']))
    return OK


def _read_settings(file: str) -> report.InspectionSettings:
    conf = cfg.ConfigOpts()
    verification.register(conf)
    try:
        conf([], default_config_files=[file])
    except cfg.Error as error:
        raise exceptions.InvalidRequestError(f'{file}: {error}') from error
    settings = report.settings_of(conf.trove_ceph_verification)
    if not settings.roots:
        raise exceptions.InvalidRequestError(
            f'{file}: [trove_ceph_verification] mysqld_roots is empty; name a root file system'
        )
    return settings


def _find_kernel(arguments: argparse.Namespace) -> tuple[Path, Path]:
    kernel, modules = arguments.kernel, arguments.modules
    if kernel is None:
        if modules is not None:
            raise exceptions.InvalidRequestError('--modules needs --kernel')
        return vm_image.find_kernel()
    if modules is None:
        modules = vm_image.MODULES / kernel.name.removeprefix('vmlinuz-')
    return kernel, modules
