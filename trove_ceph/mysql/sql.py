# SPDX-License-Identifier: Apache-2.0
"""Quoting of identifiers, which cannot be passed as parameters of a statement."""


def quoted(*names: str) -> str:
    """Return a quoted identifier; several names give a qualified one."""
    return '.'.join('`' + name.replace('`', '``') + '`' for name in names)
