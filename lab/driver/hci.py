# SPDX-License-Identifier: Apache-2.0
"""Divide the CPUs of a running lab between OSDs and guests, or lift the division."""

from driver import instruments, machine_profile, up
from driver.errors import LabError
from hci_profile import profile as profiles


def add_arguments(parser) -> None:
    """Add this command's options."""
    parser.add_argument(
        'choice',
        choices=('apply', 'lift'),
        help='apply: the CPUs of the profile for OSDs and for guests; lift: all CPUs for both',
    )


def run(settings, args) -> int:
    """Divide the CPUs between running OSDs and guests, or have both use all of them."""
    instruments.require_up(settings)
    profile = profiles.find(settings.root)
    if profile is None:
        raise LabError(
            'the lab has no plan of a hyper-converged host: run LAB_PROFILE=hci make lab first'
        )
    is_applied = args.choice == 'apply'
    with up.exclusive():
        machine_profile.divide(settings, profile, is_applied)
    print(f'lab: {machine_profile.describe_cpus(profile, is_applied)}')
    return 0
