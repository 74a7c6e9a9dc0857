# SPDX-License-Identifier: Apache-2.0
"""What is installed beside the package for service managers and deployment tools."""

from pathlib import Path

TREE = Path(__file__).parents[4]
ETC = TREE / 'etc'
DOCUMENTS = TREE / 'doc' / 'source'
