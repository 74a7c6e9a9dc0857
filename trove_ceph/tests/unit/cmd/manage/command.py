# SPDX-License-Identifier: Apache-2.0
"""Run ``trove-ceph-manage`` in the process of a test."""

import contextlib
import io
import logging
from typing import NamedTuple

from trove_ceph.cmd.manage import app


class Result(NamedTuple):
    """How a command ended, and what it printed."""

    status: int
    out: str
    err: str


def run(*words):
    """Run a command and return its result; logging is afterwards as it was before."""
    out, err = io.StringIO(), io.StringIO()
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = app.run(words)
        except SystemExit as ended:
            status = ended.code or 0
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
    return Result(status, out.getvalue(), err.getvalue())
