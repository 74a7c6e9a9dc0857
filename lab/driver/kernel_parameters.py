# SPDX-License-Identifier: Apache-2.0
"""Kernel parameters of this machine that a profile sets, and their values before."""

import json
import pathlib

PROC = pathlib.Path('/proc/sys')


def ensure_set(earlier: pathlib.Path, values: dict[str, str], proc: pathlib.Path = PROC):
    """Set parameters; record in a file what they were.

    :param earlier: the file; what it records already stays.
    :returns: {parameter: reason} of those that this kernel refuses.
    """
    recorded = json.loads(earlier.read_text()) if earlier.exists() else {}
    refused = {}
    for name, value in values.items():
        path = proc / name.replace('.', '/')
        try:
            before = path.read_text().split()
            if before != value.split():
                recorded.setdefault(name, ' '.join(before))
                # First: an interrupted run must not lose the earlier value.
                earlier.write_text(json.dumps(recorded, indent=1))
                path.write_text(value)
        except OSError as error:
            refused[name] = error.strerror or str(error)
    return refused


def restore(earlier: pathlib.Path, proc: pathlib.Path = PROC) -> None:
    """Set the parameters of a file to what they were, and remove the file."""
    if not earlier.exists():
        return
    for name, value in json.loads(earlier.read_text()).items():
        path = proc / name.replace('.', '/')
        try:
            path.write_text(value)
        except OSError:
            # It was refused when it was set, too.
            continue
    earlier.unlink()
