# SPDX-License-Identifier: Apache-2.0
"""How much memory a process keeps for what it copies."""

import ctypes

# malloc.h of glibc.
_M_ARENA_MAX = -8


def share() -> None:
    """Have all threads take memory from one heap; to be called before there are any.

    glibc gives threads heaps of their own, each of which keeps what was freed in it. Data is read
    by one of librbd's threads, handed to another and freed by a third, so that a copy would take
    several times what it has under way. Without glibc it does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), 'mallopt', None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
