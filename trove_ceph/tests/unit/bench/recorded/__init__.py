# SPDX-License-Identifier: Apache-2.0
"""Recorded output of sysbench 1.0.20, fio 3.33 and Ceph 16.2."""

from pathlib import Path

DIRECTORY = Path(__file__).parent


def text(name):
    return (DIRECTORY / name).read_text()
