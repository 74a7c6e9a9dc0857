# SPDX-License-Identifier: Apache-2.0
"""Interruption tests for operations made of steps, generated from the step lists.

A test class describes an operation once. The tests then fail and kill each step, including steps
that are added later, before and after its work, and run the operation again::

    class BackupInterruptionTest(interruption.InterruptionTests, base.BaseTestCase):
        def make_world(self): ...  # state that outlives a crash: fakes or real services
        def make_operation(self, world):  # the steps of a new process
            return steps

        def check_done(self, world): ...  # the end state, and nothing else
        def check_undone(self, world): ...  # the state before the operation, and nothing else
"""

import contextlib
import dataclasses

from trove_ceph import steps


class Failure(Exception):
    """An error that makes an operation undo its work."""


class Kill(BaseException):
    """The end of the process, after which none of its code may run."""


class InterruptionTests:
    """A mix-in for test cases, before the base class.

    Each test iterates over all steps, because the list is not known before the world exists.
    """

    def test_uninterrupted(self):
        world = self.make_world()
        self._run(self.make_operation(world))
        self.check_done(world)

    def test_run_again_when_done(self):
        world = self.make_world()
        self._run(self.make_operation(world))
        self._run(self.make_operation(world))
        self.check_done(world)

    def test_failed_before_each_step(self):
        self._interrupt_each(Failure, after=False)

    def test_failed_after_each_step(self):
        self._interrupt_each(Failure, after=True)

    def test_killed_before_each_step(self):
        self._interrupt_each(Kill, after=False)

    def test_killed_after_each_step(self):
        self._interrupt_each(Kill, after=True)

    def test_killed_again_at_each_step_while_undoing(self):
        """Fail at the last step before the point of no return, and kill in each step's undo."""
        for number in range(len(self._steps())):
            world = self.make_world()
            operation = self.make_operation(world)
            last = self._last_undone(operation)
            if operation[number].undo is None or number > last:
                continue
            failing = _replace(operation, last, interrupted(operation[last], Failure, True))
            dying = dataclasses.replace(failing[number], undo=_raise(Kill))
            self.assertRaises(Kill, self._run, _replace(failing, number, dying))
            self._run(self.make_operation(world))
            self.check_done(world)

    def _interrupt_each(self, error, after):
        for number, step in enumerate(self._steps()):
            world = self.make_world()
            operation = self.make_operation(world)
            broken = _replace(operation, number, interrupted(operation[number], error, after))
            self.assertRaises(error, self._run, broken)
            committed = any(one.commits for one in operation[: number + 1])
            if error is Failure and not committed:
                self.check_undone(world)
            with annotated(f'{error.__name__} at "{step.name}", after={after}'):
                self._run(self.make_operation(world))
                self.check_done(world)

    def _steps(self):
        return self.make_operation(self.make_world())

    @staticmethod
    def _last_undone(operation):
        """Return the number of the last step whose failure undoes the operation."""
        for number, step in enumerate(operation):
            if step.commits:
                return number - 1
        return len(operation) - 1

    @staticmethod
    def _run(operation):
        steps.run('operation under test', operation)


@contextlib.contextmanager
def annotated(what):
    """Add to a failure where the operation was interrupted."""
    try:
        yield
    except BaseException as error:
        error.add_note(f'after: {what}')
        raise


def interrupted(step, error, after):
    """Return a step that raises an error, after its work if ``after``, and instead of it if not."""

    def do():
        if after:
            step.do()
        raise error(step.name)

    return dataclasses.replace(step, do=do)


def _replace(operation, number, step):
    return [*operation[:number], step, *operation[number + 1 :]]


def _raise(error):
    def undo():
        raise error('while undoing')

    return undo
