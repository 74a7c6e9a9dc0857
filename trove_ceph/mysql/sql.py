# SPDX-License-Identifier: Apache-2.0
"""What statements need that cannot be passed to them as values."""


def quoted(*names: str) -> str:
    """Return a name as MySQL takes it in a statement, qualified if there are several."""
    return '.'.join('`' + name.replace('`', '``') + '`' for name in names)
