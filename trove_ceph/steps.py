# SPDX-License-Identifier: Apache-2.0
"""Long operations as lists of named steps that can be interrupted anywhere and run again.

Each step first observes what is there and then does what is missing, so running the whole list
again after a crash carries on where it ended. The runner writes nothing down. What exists is
observed in Ceph, MySQL, Cinder and Trove. What cannot be observed there is in our own table, which
the steps write themselves: which worker has claimed the operation and what was requested with it,
where a resource will be before it is made, and what was proved about it, such as that the server
was held until its snapshot existed.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence

from oslo_log import log as logging

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of an operation.

    :param name: what is done, as an operator would say it
    :param do: makes it so, from any state that an interrupted run can leave; doing it again is safe
    :param undo: ensures that nothing which this operation's step made is there; it may be called
        when the step has not even begun, and touches only what carries the operation's id
    :param commits: the point of no return: once this step has begun nothing is undone, because a
        failed step may have done its work, and only running the operation again completes it. What
        can be refused is therefore asked for in a step before
    """

    name: str
    do: Callable[[], object]
    undo: Callable[[], object] | None = None
    commits: bool = False


def run(
    operation: str,
    steps: Sequence[Step],
    note: Callable[[str, int, int], object] | None = None,
) -> None:
    """Run the steps in order; when one fails, undo it and those before it, the last one first.

    Only errors are undone. What ends the process, a signal or an exit, undoes nothing: the next
    run takes up what it finds.

    :param operation: what the log calls it, with the ids of operation and instance
    :param note: called before each step with its name, its number from 1 and the number of steps
    :raises Exception: the first error, whatever the undoing met; it carries that as notes
    """
    began = time.monotonic()
    LOG.info('%s: begins', operation)
    committed = False
    for number, step in enumerate(steps, 1):
        if note is not None:
            note(step.name, number, len(steps))
        committed = committed or step.commits
        try:
            step.do()
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
            LOG.exception('%s: "%s" could not be undone', operation, step.name)
            error.add_note(f'left behind by "{step.name}": {failure}')
