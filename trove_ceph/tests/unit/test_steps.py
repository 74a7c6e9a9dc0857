# SPDX-License-Identifier: Apache-2.0
"""The step runner, and the interruption tests on an operation small enough to be seen through."""

from oslotest import base

from trove_ceph import steps
from trove_ceph.tests import interruption


class RunTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.events = []

    def step(self, name, error=None, undo=True, undo_error=None, commits=False):
        def do():
            self.events.append(f'do {name}')
            if error:
                raise error

        def undo_it():
            self.events.append(f'undo {name}')
            if undo_error:
                raise undo_error

        return steps.Step(name, do, undo_it if undo else None, commits)

    def run_steps(self, *operation, note=None):
        steps.run('test', operation, note)

    def test_steps_run_in_order_and_are_noted(self):
        notes = []
        self.run_steps(self.step('a'), self.step('b'), note=lambda *each: notes.append(each))
        self.assertEqual(['do a', 'do b'], self.events)
        self.assertEqual([('a', 1, 2), ('b', 2, 2)], notes)

    def test_failed_step_is_undone_too_and_the_last_first(self):
        error = ValueError('no space')
        failing = [self.step('a'), self.step('b', undo=False), self.step('c', error=error)]
        raised = self.assertRaises(ValueError, self.run_steps, *failing, self.step('d'))
        self.assertIs(error, raised)
        self.assertEqual(['do a', 'do b', 'do c', 'undo c', 'undo a'], self.events)

    def test_failed_undo_hides_neither_the_error_nor_the_other_undos(self):
        failing = [
            self.step('a'),
            self.step('b', undo_error=OSError('busy')),
            self.step('c', error=ValueError('no space')),
        ]
        raised = self.assertRaises(ValueError, self.run_steps, *failing)
        self.assertEqual(['undo c', 'undo b', 'undo a'], self.events[3:])
        self.assertEqual(['left behind by "b": busy'], raised.__notes__)

    def test_nothing_is_undone_past_the_point_of_no_return(self):
        failing = [self.step('a'), self.step('b', commits=True), self.step('c', error=ValueError())]
        self.assertRaises(ValueError, self.run_steps, *failing)
        self.assertEqual(['do a', 'do b', 'do c'], self.events)

    def test_unfinished_step_undoes_nothing(self):
        operation = [self.step('a'), self.step('b', error=KeyError('wait')), self.step('c')]
        self.assertRaises(KeyError, steps.run, 'test', operation, unfinished=(KeyError,))
        self.assertEqual(['do a', 'do b'], self.events)

    def noting(self, error, at):
        """Return a note that raises an error before a step."""

        def note(name, *_):
            self.events.append(f'note {name}')
            if name == at:
                raise error

        return note

    def test_failed_note_is_the_failure_of_a_step_that_has_not_begun(self):
        error = ValueError('not allowed any more')
        operation = [self.step('a'), self.step('b'), self.step('c')]
        raised = self.assertRaises(
            ValueError, self.run_steps, *operation, note=self.noting(error, 'b')
        )
        self.assertIs(error, raised)
        self.assertEqual(['note a', 'do a', 'note b', 'undo b', 'undo a'], self.events)

    def test_failed_note_of_the_point_of_no_return(self):
        """Before it, all is undone; after it, nothing."""
        operation = [self.step('a'), self.step('b', commits=True), self.step('c')]
        for name, undone in (('b', ['undo b', 'undo a']), ('c', [])):
            self.events.clear()
            note = self.noting(ValueError(), name)
            self.assertRaises(ValueError, self.run_steps, *operation, note=note)
            self.assertEqual(undone, [one for one in self.events if one.startswith('undo')])

    def test_note_may_be_unfinished_as_a_step(self):
        operation = [self.step('a'), self.step('b')]
        note = self.noting(KeyError(), 'b')
        self.assertRaises(KeyError, steps.run, 'test', operation, note, unfinished=(KeyError,))
        self.assertEqual(['note a', 'do a', 'note b'], self.events)

    def test_failed_point_of_no_return_may_have_done_its_work(self):
        failing = [self.step('a'), self.step('b', error=ValueError(), commits=True)]
        self.assertRaises(ValueError, self.run_steps, *failing)
        self.assertEqual(['do a', 'do b'], self.events)

    def test_end_of_the_process_undoes_nothing(self):
        dying = [self.step('a'), self.step('b', error=SystemExit())]
        self.assertRaises(SystemExit, self.run_steps, *dying)
        self.assertEqual(['do a', 'do b'], self.events)


def move(world, source, target):
    """Move the one file of a world in three steps: the smallest operation of its kind."""

    def write():
        if source in world:
            world[f'{target}.new'] = world[source]

    def rename():
        if f'{target}.new' in world:
            world[target] = world.pop(f'{target}.new')

    def remove():
        world.pop(source, None)

    return [
        steps.Step('write', write, lambda: world.pop(f'{target}.new', None)),
        steps.Step('rename', rename, lambda: world.pop(target, None)),
        steps.Step('remove', remove, commits=True),
        steps.Step('nothing more', lambda: None),
    ]


class MoveInterruptionTest(interruption.InterruptionTests, base.BaseTestCase):
    def make_world(self):
        return {'old': 'content'}

    def make_operation(self, world):
        return move(world, 'old', 'new')

    def check_done(self, world):
        self.assertEqual({'new': 'content'}, world)

    def check_undone(self, world):
        self.assertEqual({'old': 'content'}, world)


class FindsFaultsTest(base.BaseTestCase):
    """The generated tests fail for operations that do not bear an interruption."""

    def failures(self, faulty_steps):
        class Faulty(MoveInterruptionTest):
            def make_operation(self, world):
                return faulty_steps(world)

        names = [name for name in dir(Faulty) if name.startswith('test_')]
        return {name for name in names if not Faulty(name).run().wasSuccessful()}

    def test_sound_operation_has_none(self):
        self.assertEqual(set(), self.failures(lambda world: move(world, 'old', 'new')))

    def test_step_that_leaves_something(self):
        def faulty(world):
            write, *others = move(world, 'old', 'new')
            return [steps.Step(write.name, write.do), *others]

        self.assertIn('test_failed_after_each_step', self.failures(faulty))

    def test_step_that_cannot_be_repeated(self):
        def faulty(world):
            write, rename, _, end = move(world, 'old', 'new')
            strict = steps.Step('remove', lambda: world.pop('old'), commits=True)
            return [write, rename, strict, end]

        found = self.failures(faulty)
        self.assertIn('test_killed_after_each_step', found)
        self.assertIn('test_run_again_when_done', found)
