# SPDX-License-Identifier: Apache-2.0
"""The releases of Trove that this release of trove_ceph supports.

The dependency on Trove in ``pyproject.toml`` states the same; a unit test compares them.
"""

import re

#: Major versions: Trove 25 is OpenStack 2026.1, Trove 26 is 2026.2.
LEAST, NEWEST = 25, 26
REQUIREMENT = f'trove>={LEAST},<{NEWEST + 1}'


def includes(version: str) -> bool:
    """Return whether a version of Trove, such as ``26.0.0``, is supported."""
    found = re.match(r'\d+', version)
    return found is not None and LEAST <= int(found[0]) <= NEWEST
