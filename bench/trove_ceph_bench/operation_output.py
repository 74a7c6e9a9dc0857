# SPDX-License-Identifier: Apache-2.0
"""What the command of an operation prints, as :mod:`.shell` reads it."""

from collections.abc import Mapping
from pathlib import Path


def print_begin() -> None:
    """Print that the operation begins: its command has prepared itself."""
    print('begin', flush=True)


def print_phase(name: str) -> None:
    """Print that a phase has ended."""
    print(f'phase {name}', flush=True)


def record_figure(directory: Path | None, name: str, figure: int) -> None:
    """Print a figure, and write it to a file of its name in the plan's directory."""
    print(f'{name} {figure}')
    if directory:
        (directory / name).write_text(f'{figure}\n')


def directory(environ: Mapping[str, str]) -> Path | None:
    """Return the plan's directory for files of the attempt; None outside of a plan."""
    found = environ.get('BENCH_DIRECTORY')
    return Path(found) if found else None
