# SPDX-License-Identifier: Apache-2.0
"""Long operations as lists of named steps that can be interrupted anywhere and run again.

Each step first observes the present state and then does what is missing, so a rerun of the whole
list after a crash continues where it stopped. The runner itself records nothing. The steps observe
resources in Ceph, MySQL, Cinder and Trove. They record in our own table what cannot be observed
there: which worker has claimed the operation and what was requested, the location of a resource
before it is created, and what was proved about it, such as that the server was quiesced until its
snapshot existed.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence

from oslo_log import log as logging

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of an operation.

    :param name: what the step does, in an operator's words
    :param do: does it from any state that an interrupted run can leave; idempotent
    :param undo: removes everything that this step created; called even if the step has not begun,
        and changes only resources with the operation's id
    :param commits: whether this step is the point of no return: once it has begun nothing is
        undone, because a failed step may have had its effect, and only a rerun completes the
        operation. Requests that can be refused belong into an earlier step
    """

    name: str
    do: Callable[[], object]
    undo: Callable[[], object] | None = None
    commits: bool = False


def run(
    operation: str,
    steps: Sequence[Step],
    note: Callable[[str, int, int], object] | None = None,
    unfinished: tuple[type[Exception], ...] = (),
) -> None:
    """Run the steps in order; if one fails, undo it and those before it in reverse order.

    Only an error leads to an undo. A signal or an exit ends the process without one; the next run
    continues from the state that it finds.

    :param operation: name for the log, with the ids of operation and instance
    :param note: called before each step with its name, its number from 1 and the number of steps.
        It may raise to stop the operation, such as when this process holds its locks no more. That
        is an error of the step, which has not begun: what the steps before it hold is released, and
        an undo that must not change anything then checks that itself
    :param unfinished: errors of a step or of ``note`` with which the step has not failed, but must
        be run again; nothing is undone
    :raises Exception: the error of the failed step; errors of the undo are attached as notes
    """
    began = time.monotonic()
    LOG.info('%s: started', operation)
    committed = False
    for number, step in enumerate(steps, 1):
        try:
            if note is not None:
                note(step.name, number, len(steps))
            committed = committed or step.commits
            step.do()
        except unfinished as error:
            LOG.info('%s: "%s" is not finished: %s', operation, step.name, error)
            raise
        except Exception as error:
            if committed:
                LOG.error(
                    '%s: failed at "%s", at or past the point of no return; run it again: %s',
                    operation,
                    step.name,
                    error,
                )
            else:
                LOG.warning('%s: failed at "%s", undoing: %s', operation, step.name, error)
                _undo(operation, steps[:number], error)
            raise
    LOG.info('%s: done in %.1f s', operation, time.monotonic() - began)


def _undo(operation: str, steps: Sequence[Step], error: Exception) -> None:
    for step in reversed(steps):
        if step.undo is None:
            continue
        try:
            step.undo()
        except Exception as failure:
            LOG.exception('%s: undoing "%s" failed', operation, step.name)
            error.add_note(f'left behind by "{step.name}": {failure}')
