# SPDX-License-Identifier: Apache-2.0
"""Limit the memory that malloc keeps in a process with many threads."""

import ctypes

# malloc.h of glibc.
_M_ARENA_MAX = -8


def share() -> None:
    """Make all threads share one malloc arena; call it before any thread is started.

    glibc gives each thread an arena, which keeps freed memory. One thread of librbd reads the data
    of a copy, another writes it and a third frees it, so a copy would use several times its bytes
    in flight. Without glibc this does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), 'mallopt', None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
