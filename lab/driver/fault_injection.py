# SPDX-License-Identifier: Apache-2.0
"""Kill services at random moments of operations on a running lab."""

from fault_injection import plan

from driver import instruments


def add_arguments(parser) -> None:
    """Add this command's options."""
    parser.add_argument('--rounds', type=int, default=15, help='number of kills (default: 15)')
    parser.add_argument('--seed', type=int, help='repeat the rounds of an earlier run')
    parser.add_argument(
        '--limit-sec',
        type=float,
        default=90.0,
        help='time limit for each operation to settle after the kill (default: 90)',
    )
    parser.add_argument(
        '--operation',
        action='append',
        choices=list(plan.TYPICAL_SEC),
        help='only this operation; may be repeated',
    )
    parser.add_argument(
        '--service',
        action='append',
        choices=plan.SERVICES,
        help='kill only this service; may be repeated',
    )


def run(settings, args) -> int:
    """Install the instruments, run the rounds and show the results of the operations."""
    options = [
        f'--rounds={args.rounds}',
        f'--limit-sec={args.limit_sec}',
        *([] if args.seed is None else [f'--seed={args.seed}']),
        *(f'--operation={name}' for name in args.operation or ()),
        *(f'--service={name}' for name in args.service or ()),
    ]
    return instruments.run_module(settings, 'fault_injection', options)
