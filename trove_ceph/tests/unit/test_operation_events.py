# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph import exceptions, operation_events, steps
from trove_ceph.operation_events import Operation, Phase


class OperationEventsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = 100.0
        self.events = []
        self.addCleanup(operation_events.subscribe(self.events.append))

    def begin(self, **subject):
        return operation_events.begin(Operation.GUEST_BIND, lambda: self.now, **subject)

    def test_success_with_what_was_found(self):
        report = self.begin(guest_id='g')
        with report.ending():
            self.now += 3
            report.add(host='h')
        start, end = self.events
        self.assertEqual((Phase.START, {'guest_id': 'g'}, None), _main(start))
        self.assertEqual((Phase.END, {'guest_id': 'g', 'host': 'h'}, 3.0), _main(end))

    def test_an_error_passes_and_is_told_with_its_class(self):
        report = self.begin()
        error = exceptions.NoSpaceError('pool p: is full')

        def fail():
            with report.ending():
                raise error

        self.assertIs(error, self.assertRaises(exceptions.NoSpaceError, fail))
        told = self.events[-1]
        self.assertEqual(
            (Phase.ERROR, 'NoSpaceError', 'pool p: is full'), (told.phase, told.cause, told.message)
        )

    def test_work_that_goes_on_elsewhere_has_not_failed(self):
        for error in (exceptions.ClaimLostError, exceptions.CanceledError):
            self.events.clear()
            with self.assertRaisesRegex(error, 'lost'), self.begin().ending():
                raise error('lost')
            self.assertEqual([Phase.START, Phase.INTERRUPTED], [one.phase for one in self.events])

    def test_steps_have_their_own_durations(self):
        report = self.begin()

        def pass_time(seconds):
            self.now += seconds

        names = {'attach': 2, 'describe': 5}
        listed = [
            steps.Step(name, lambda seconds=seconds: pass_time(seconds))
            for name, seconds in names.items()
        ]
        with report.ending():
            steps.run('binding', listed, report.enter)
        told = {one.step: one.seconds for one in self.events if one.phase is Phase.STEP}
        self.assertEqual(names, told)
        self.assertEqual((Phase.END, 7.0), (self.events[-1].phase, self.events[-1].seconds))

    def test_a_failed_step_has_no_duration(self):
        report = self.begin()
        with self.assertRaises(ValueError), report.ending():
            report.enter('attach', 1, 1)
            raise ValueError('no')
        self.assertEqual([Phase.START, Phase.ERROR], [one.phase for one in self.events])

    def test_a_listener_cannot_fail_an_operation(self):
        def broken(event):
            raise RuntimeError('the bus is down')

        self.addCleanup(operation_events.subscribe(broken))
        with operation_events.reported(Operation.RESTORE, instance_id='i'):
            pass
        self.assertEqual([Phase.START, Phase.END], [one.phase for one in self.events])

    def test_a_subscription_ends(self):
        found = []
        unsubscribe = operation_events.subscribe(found.append)
        unsubscribe()
        self.begin()
        self.assertEqual([], found)


def _main(event):
    return event.phase, dict(event.subject), event.seconds
