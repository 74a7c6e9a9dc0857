# SPDX-License-Identifier: Apache-2.0
"""Examine a running lab with ``trove-ceph-manage doctor``."""

import os

from driver import environment, instruments, up


def add_arguments(parser) -> None:
    """Add this command's options."""
    parser.add_argument(
        'options',
        nargs='*',
        metavar='OPTION',
        help='options of trove-ceph-manage doctor, after "--", such as -- --level warning',
    )


def run(settings, args) -> int:
    """Examine the lab with the configuration of its services; return the doctor's exit code."""
    instruments.require_up(settings)
    etc, programs = settings.root / 'etc', settings.root / 'venv' / 'bin'
    command = [
        programs / 'trove-ceph-manage',
        'doctor',
        f'--trove-api-config-file={etc}/trove/trove.conf',
        f'--trove-api-config-file={etc}/trove/trove-api.conf',
        f'--cinder-config-file={etc}/cinder/cinder.conf',
        f'--nova-config-file={etc}/nova/nova.conf',
        f'--nova-config-file={etc}/nova/nova-compute.conf',
        f'--trove-manage={programs}/trove-manage',
        f'--measurements={settings.root}/state/measurements.json',
        *args.options,
    ]
    return up.call(list(map(str, command)), os.environ | environment.of_manage(settings))
