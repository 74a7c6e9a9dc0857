# SPDX-License-Identifier: Apache-2.0
"""Print the installed version of a requirement's package; the exit status tells if it suffices."""

import importlib.metadata
import sys

from packaging.requirements import Requirement

requirement = Requirement(sys.argv[1])
try:
    version = importlib.metadata.version(requirement.name)
except importlib.metadata.PackageNotFoundError:
    sys.exit(2)
print(version)
# As pip does for an installed package: 26.0.1.dev5 suffices for 26.0.0, and 26.0.0.dev5 does not.
sys.exit(not requirement.specifier.contains(version, prereleases=True))
