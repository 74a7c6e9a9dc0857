# SPDX-License-Identifier: Apache-2.0
"""Run Tempest's scenarios, this project's and trove-tempest-plugin's, on a running lab."""

from driver import instruments


def add_arguments(parser) -> None:
    """Add this command's options."""
    parser.add_argument('--smoke', action='store_true', help='only the short tests of this project')
    whose = parser.add_mutually_exclusive_group()
    for name, text in (
        ('ours', "only this project's"),
        ('theirs', "only trove-tempest-plugin's"),
    ):
        whose.add_argument(f'--{name}', dest='whose', action='store_const', const=name, help=text)
    parser.add_argument('regex', nargs='?', help='only tests whose name matches')


def run(settings, args) -> int:
    """Install the instruments, run the scenarios and show their results."""
    options = [
        *(['--smoke'] if args.smoke else []),
        *([f'--{args.whose}'] if args.whose else []),
        *([f'--regex={args.regex}'] if args.regex else []),
    ]
    return instruments.run_module(settings, 'scenarios', options)
