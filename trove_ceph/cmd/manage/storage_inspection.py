# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage storage inspection-image``: build the image of virtual machines."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oslo_config import cfg

from trove_ceph import exceptions
from trove_ceph.cmd.manage import base, options
from trove_ceph.conf import verification
from trove_ceph.verification import report, vm_image

_DEFAULT_CONFIG = '/etc/trove-ceph/trove-ceph-storage.conf'
_EXIT_CODES = """\
exit status:
  0  the image is complete
  2  the command line is wrong
  3  the image cannot be built: the configuration file, a kernel, a root file system or a program is
     missing or cannot be used
"""


class InspectionImage(base.Report):
    """Build the virtual machine image in which backups are inspected.

    It holds a kernel, an initramfs and an image of each root file system in
    [trove_ceph_verification] mysqld_roots. The command writes it to vm_image_directory and builds
    only what has changed. Inspections that run keep their files.

    Run it as root on each host of trove-ceph-storage, and again after a new kernel or MySQL is
    installed; then restart the service. It needs busybox-static, kmod and squashfs-tools.
    """

    exit_codes = _EXIT_CODES
    examples = """\
examples:
  Build the image with the newest kernel for clouds that is installed:
    trove-ceph-manage storage inspection-image

  Use a kernel that is not installed:
    trove-ceph-manage storage inspection-image \\
      --kernel /srv/kernel/boot/vmlinuz-6.1.0-56-cloud-amd64 \\
      --modules /srv/kernel/lib/modules/6.1.0-56-cloud-amd64
"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser, with the options for the kernel and the configuration."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--kernel',
            type=Path,
            metavar='FILE',
            help='the kernel (default: the newest one for clouds in /boot, else the newest one)',
        )
        parser.add_argument(
            '--modules',
            type=Path,
            metavar='DIRECTORY',
            help='the modules of --kernel (default: its directory in /lib/modules)',
        )
        options.add_option(
            parser,
            '--config-file',
            options.STORAGE_CONF,
            _DEFAULT_CONFIG,
            'the file with [trove_ceph_verification]',
        )
        return parser

    def make_report(self, parsed_args: argparse.Namespace) -> tuple[Mapping[str, Any], str]:
        """Build the image; return its files and what was built."""
        settings = _read_settings(parsed_args.config_file)
        kernel, modules = _find_kernel(parsed_args)
        roots = tuple(sorted(set(settings.roots.values())))
        lines: list[str] = []
        image = vm_image.build(
            settings.vm_image_directory, vm_image.Sources(kernel, modules, roots), lines.append
        )
        document = {
            'directory': str(settings.vm_image_directory),
            'kernel_release': image.release,
            'roots': {root: str(file) for root, file in image.roots.items()},
            'done': lines,
        }
        return document, '\n'.join([*lines, f'The image is in {settings.vm_image_directory}.'])


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


def _find_kernel(parsed_args: argparse.Namespace) -> tuple[Path, Path]:
    kernel, modules = parsed_args.kernel, parsed_args.modules
    if kernel is None:
        if modules is not None:
            raise exceptions.InvalidRequestError('--modules needs --kernel')
        return vm_image.find_kernel()
    if modules is None:
        modules = vm_image.MODULES / kernel.name.removeprefix('vmlinuz-')
    return kernel, modules
