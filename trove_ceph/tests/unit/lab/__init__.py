# SPDX-License-Identifier: Apache-2.0
"""Tests of the lab's own modules, which are not part of the installed package."""

import sys
from pathlib import Path

# Imported from the checkout, as the lab does.
LAB = Path(__file__).resolve().parents[4] / 'lab'
if str(LAB) not in sys.path:
    sys.path.insert(0, str(LAB))
