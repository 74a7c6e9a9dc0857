# SPDX-License-Identifier: Apache-2.0
"""Entry for setuptools; pbr reads everything from pyproject.toml and setup.cfg."""

import setuptools

setuptools.setup(setup_requires=['pbr>=6.1.1'], pbr=True)
