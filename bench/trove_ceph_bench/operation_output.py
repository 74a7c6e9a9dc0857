# SPDX-License-Identifier: Apache-2.0
"""What the command of an operation prints, as :mod:`.shell` reads it."""

from pathlib import Path


def print_phase(name: str) -> None:
    """Print that a phase has ended."""
    print(f'phase {name}', flush=True)


def record_figure(directory: Path | None, name: str, figure: int) -> None:
    """Print a figure, and write it to a file of its name in the plan's directory."""
    print(f'{name} {figure}')
    if directory:
        (directory / name).write_text(f'{figure}\n')
