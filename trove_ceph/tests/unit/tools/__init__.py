# SPDX-License-Identifier: Apache-2.0
"""Tests of the programs in ``tools``, which are not modules."""

import importlib.machinery
import importlib.util
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[4] / 'tools'


def load(name):
    """Import a program in ``tools`` as a module, without running it."""
    loader = importlib.machinery.SourceFileLoader(name.replace('-', '_'), str(TOOLS / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module
