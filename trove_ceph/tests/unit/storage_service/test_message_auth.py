# SPDX-License-Identifier: Apache-2.0
"""An attacker on the message bus forges, changes, repeats, and answers in the service's place.

Service and caller are real; the bus between them is what the test makes of it.
"""

import json
import os
import threading
import uuid

import fixtures
import oslo_messaging as messaging
import testscenarios
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import image_types, names, tasks
from trove_ceph.storage_service import endpoint, message_auth, message_keys, rpcapi, signed_client
from trove_ceph.storage_service import transport as storage_transport
from trove_ceph.storage_service.message_auth import Refusal
from trove_ceph.tests.unit.storage_service import bus, service_world

IMAGE, VAULT = (names.image_name(kind, str(uuid.uuid4())) for kind in ('restore', 'vault'))
SKEW_SEC = 30
TIMEOUT_SEC = 180
NOW = 1_700_000_000.0
load_tests = testscenarios.load_tests_apply_scenarios


def changed(message, /, **content):
    """Return a message whose content was changed and whose signature was not."""
    return message | {'content': json.dumps(json.loads(message['content']) | content)}


class AttackTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = self.service_now = NOW
        directory = self.useFixture(fixtures.TempDir())
        self.keys = message_keys.KeyFile(directory.join('keys.json'))
        self.service_keys = message_keys.KeyFile(directory.join('keys.json'))
        message_keys.create(self.keys.path)
        self.world = service_world.World(IMAGE, VAULT)
        self.image = self.world.image
        self.seen = []
        self.bus = self.serve()
        self.useFixture(
            fixtures.MonkeyPatch('oslo_messaging.get_rpc_client', lambda *_, **__: self.bus)
        )
        self.log = self.useFixture(fixtures.FakeLogger())

    def serve(self):
        """Start a copy of the service on the bus; the time, and what was done, are the same."""
        return bus.Bus(
            self.world.service(), self.service_keys, lambda: self.service_now, self.tap, SKEW_SEC
        )

    def tap(self, kind, message):
        """What the attacker does with each message; to be replaced."""
        self.seen.append((kind, message))
        return message

    def attack(self, kind, change):
        """Have messages of a kind changed on their way."""

        def tap(passing, message):
            self.seen.append((passing, message))
            return change(message) if passing == kind else message

        self.bus._tap = tap

    def caller(self):
        connection = storage_transport.Connection(None, self.keys, SKEW_SEC)
        client = signed_client.SignedClient(
            connection, messaging.Target(topic=rpcapi.TOPIC), TIMEOUT_SEC, lambda: self.now
        )
        made = rpcapi.StorageAPI(connection, TIMEOUT_SEC)
        made._client = client
        return made

    def snapshots(self):
        return self.world.storage.describe(self.image).snapshot_names

    def last(self, kind):
        return [message for seen, message in self.seen if seen == kind][-1]

    def send(self, message):
        """Put a message on the bus as the attacker; return the unsigned refusal, or the reply."""
        return self.bus.call({}, signed_client.METHOD, message)

    def assert_refused(self, reason, message):
        before = len(self.world.cluster.entries), self.snapshots()
        self.assertEqual({'refused': str(reason)}, self.send(message))
        self.assertEqual(before, (len(self.world.cluster.entries), self.snapshots()))


class RequestTest(AttackTestCase):
    def test_what_is_signed_is_carried_out_once(self):
        self.caller().create_snapshot(self.image.snapshot('t'))
        self.assertEqual(['s', 't'], self.snapshots())
        requests = [json.loads(one['content']) for kind, one in self.seen if kind == 'request']
        # Without an address first, then for this copy, under another nonce.
        self.assertEqual([None, 'one'], [one['address'] and 'one' for one in requests])
        self.assertNotEqual(requests[0]['nonce'], requests[1]['nonce'])
        for name in ('verb', 'arguments', 'issued_at', 'expires_at'):
            self.assertIn(name, requests[0])

    def test_no_signature(self):
        for message in (
            None,
            [],
            'remove_snapshot',
            {},
            {'verb': 'list_jobs', 'arguments': {}},
            {'key_id': 1, 'content': '{}', 'mac': ''},
            {'key_id': self.keys.load().current.id, 'content': '{}'},
            {'key_id': self.keys.load().current.id, 'content': {}, 'mac': '0' * 64},
        ):
            self.assert_refused(Refusal.MALFORMED, message)

    def test_forged(self):
        content = json.dumps({'format': 1, 'verb': 'list_jobs'})
        key_id = self.keys.load().current.id
        for mac in ('', '0' * 64, 'ü', '\ud800'):
            message = {'key_id': key_id, 'content': content, 'mac': mac}
            self.assertEqual({'refused': 'bad-signature'}, self.bus.receiver.request({}, message))
        message = {'key_id': key_id, 'content': '\ud800', 'mac': '0' * 64}
        self.assertEqual({'refused': 'bad-signature'}, self.bus.receiver.request({}, message))

    def test_by_a_wrong_key(self):
        path = self.useFixture(fixtures.TempDir()).join('own.json')
        message_keys.create(path)
        self.keys = message_keys.KeyFile(path)
        error = self.assertRaises(exceptions.UnauthenticatedReplyError, self.caller().list_jobs)
        self.assertIn('neither the current nor the previous one', str(error))
        # Even under the id of the right one.
        content = json.loads(open(path).read())
        content['current']['id'] = self.service_keys.load().current.id
        with open(path, 'w') as file:
            json.dump(content, file)
        error = self.assertRaises(exceptions.UnauthenticatedReplyError, self.caller().list_jobs)
        self.assertIn('signature is wrong', str(error))

    def test_a_reply_is_no_request(self):
        self.caller().list_jobs()
        self.assert_refused(Refusal.BAD_SIGNATURE, self.last('reply'))

    def test_any_change_is_noticed(self):
        self.caller().create_snapshot(self.image.snapshot('t'))
        message = self.last('request')
        content = json.loads(message['content'])
        for name, value in (
            ('verb', 'remove_snapshot'),
            ('arguments', content['arguments'] | {'snapshot': None}),
            ('nonce', '0' * 32),
            ('issued_at', content['issued_at'] + 1),
            ('expires_at', content['expires_at'] + 1),
            ('address', None),
            ('format', 2),
        ):
            self.assertIn(name, content)
            self.assert_refused(Refusal.BAD_SIGNATURE, changed(message, **{name: value}))
        # Even one that means the same.
        self.assert_refused(Refusal.BAD_SIGNATURE, message | {'content': message['content'] + ' '})
        message_keys.rotate(self.keys.path)
        self.assert_refused(
            Refusal.BAD_SIGNATURE, message | {'key_id': self.keys.load().current.id}
        )

    def test_changed_on_its_way(self):
        self.attack('request', lambda message: changed(message, verb='list_jobs'))
        error = self.assertRaises(
            exceptions.UnauthenticatedReplyError,
            self.caller().remove_snapshot,
            self.image.snapshot('s'),
        )
        self.assertIn('says a reply without signature', str(error))
        self.assertEqual(['s'], self.snapshots())
        self.assertIn('A request is refused', self.log.output)

    def test_replayed(self):
        self.caller().remove_snapshot(self.image.snapshot('s'))
        message = self.last('request')
        self.world.storage.create_snapshot(self.image.snapshot('s'))
        for seconds in (0, 1, 3, TIMEOUT_SEC + SKEW_SEC - 1):
            self.service_now = NOW + seconds
            self.assert_refused(Refusal.REPLAYED, message)
        self.service_now = NOW + TIMEOUT_SEC + SKEW_SEC + 1
        self.assert_refused(Refusal.EXPIRED, message)

    def test_replayed_to_another_copy_and_after_a_restart(self):
        self.caller().remove_snapshot(self.image.snapshot('s'))
        message = self.last('request')
        self.world.storage.create_snapshot(self.image.snapshot('s'))
        # The same name, another run.
        self.bus = self.serve()
        self.assert_refused(Refusal.OTHER_RECIPIENT, message)

    def test_without_an_address_nothing_is_changed(self):
        self.caller().remove_snapshot(self.image.snapshot('s'))
        unaddressed = next(one for kind, one in self.seen if kind == 'request')
        self.world.storage.create_snapshot(self.image.snapshot('s'))
        self.assert_refused(Refusal.REPLAYED, unaddressed)
        self.bus = self.serve()
        reply = self.send(unaddressed)
        self.assertIn('address', json.loads(reply['content']))
        self.assertEqual(['s'], self.snapshots())

    def test_a_clock_that_is_put_back_forgives_no_replay(self):
        self.caller().remove_snapshot(self.image.snapshot('s'))
        message = self.last('request')
        self.world.storage.create_snapshot(self.image.snapshot('s'))
        self.now = self.service_now = NOW + 3600
        self.caller().list_jobs()
        self.service_now = NOW
        self.assert_refused(Refusal.REPLAYED, message)
        # New ones are accepted at once.
        self.now = NOW + 1
        self.caller().create_snapshot(self.image.snapshot('t'))

    def test_delivered_twice_the_second_waits_for_the_first(self):
        """Or the refusal would be faster than the answer that the caller waits for."""
        begun, go_on, answers = threading.Event(), threading.Event(), []
        self.addCleanup(go_on.set)
        describe = self.world.storage.__class__.describe

        def slow(storage, *arguments, **options):
            begun.set()
            go_on.wait(60)
            return describe(storage, *arguments, **options)

        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.storage.fake.backend.FakeBackend.describe', slow)
        )
        caller = message_auth.Caller(self.keys, lambda: self.now)
        arguments = {'image': {'class': 'ImageRef', 'is': {'pool': 'volumes', 'name': IMAGE}}}
        message, request = caller.sign('describe', arguments | {'with_usage': False}, 60)

        def ask(name):
            answers.append((name, self.bus.receiver.request({}, message)))

        first = threading.Thread(target=ask, args=['first'])
        first.start()
        self.assertTrue(begun.wait(60))
        second = threading.Thread(target=ask, args=['second'])
        second.start()
        second.join(0.2)
        self.assertEqual([], answers)
        go_on.set()
        first.join()
        second.join()
        answers = dict(answers)
        self.assertIn('result', caller.open_reply(answers['first'], request))
        self.assertEqual({'refused': 'replayed'}, answers['second'])

    def test_nonces_are_forgotten_when_their_requests_expire(self):
        caller = self.caller()
        for second in range(0, 3600, 60):
            self.now = self.service_now = NOW + second
            caller.list_jobs()
        kept = (TIMEOUT_SEC + SKEW_SEC) // 60 + 1
        self.assertLessEqual(len(self.bus.verifier._nonces), kept)

    def test_a_lifetime_that_no_caller_gives(self):
        key = self.keys.load().current
        for issued_at, expires_at in ((NOW, NOW + 1e9), (NOW + 1, NOW), (NOW, float(10**300))):
            content = {
                'format': 1,
                'verb': 'list_jobs',
                'arguments': {},
                'nonce': 'n',
                'issued_at': issued_at,
                'expires_at': expires_at,
                'address': None,
            }
            message = message_auth._sign(key, message_auth.Purpose.REQUEST, content)
            self.assert_refused(Refusal.EXPIRED, message)

    def test_the_time_limit_of_the_caller_is_bounded(self):
        _, request = message_auth.Caller(self.keys, lambda: NOW).sign('describe', {}, 1e9)
        self.assertEqual(NOW + message_auth.MAX_LIFETIME_SEC, request.expires_at)

    def test_no_such_verb(self):
        for verb in ('shutdown', '_changing', 'target', '__init__'):
            error = self.assertRaises(
                exceptions.InvalidRequestError, self.caller()._client.call, {}, verb
            )
            self.assertIn('there is no such verb', str(error))

    def test_wrong_arguments(self):
        for arguments in ({}, {'image': 1, 'no': 2}, {'snapshot': 's'}, {'snapshot': None}):
            self.assertRaises(
                exceptions.InvalidRequestError,
                self.caller()._client.call,
                {},
                'remove_snapshot',
                **arguments,
            )


class ClockTest(AttackTestCase):
    scenarios = [
        (f'{seconds:+} s', {'seconds': seconds, 'is_accepted': is_accepted})
        for seconds, is_accepted in (
            (-3600, False),
            (-TIMEOUT_SEC - SKEW_SEC - 1, False),
            (-SKEW_SEC, True),
            (0, True),
            (SKEW_SEC, True),
            (SKEW_SEC + 1, False),
            (3600, False),
        )
    ]

    def test_the_callers_clock_is_wrong(self):
        self.now = NOW + self.seconds
        create = self.caller().create_snapshot
        if self.is_accepted:
            create(self.image.snapshot('t'))
            self.assertEqual(['s', 't'], self.snapshots())
        else:
            error = self.assertRaises(
                exceptions.UnauthenticatedReplyError, create, self.image.snapshot('t')
            )
            self.assertIn('do the clocks of service and caller agree?', str(error))
            self.assertEqual(['s'], self.snapshots())


class KeysTest(AttackTestCase):
    def own_file(self):
        """Give the caller a copy of the key file on another host."""
        path = self.useFixture(fixtures.TempDir()).join('keys.json')
        self.keys = message_keys.KeyFile(path)
        self.copy_to_caller()

    def copy_to_caller(self):
        with open(self.service_keys.path) as source, open(self.keys.path, 'w') as target:
            target.write(source.read())
        os.chmod(self.keys.path, 0o600)

    def test_rotated_at_the_service_first(self):
        self.own_file()
        caller = self.caller()
        message_keys.rotate(self.service_keys.path)
        caller.list_jobs()
        self.assertEqual(self.keys.load().current.id, self.last('reply')['key_id'])
        self.copy_to_caller()
        caller.list_jobs()
        message_keys.retire(self.service_keys.path)
        caller.list_jobs()

    def test_the_previous_one_is_retired(self):
        self.own_file()
        caller = self.caller()
        caller.list_jobs()
        message_keys.rotate(self.service_keys.path)
        message_keys.retire(self.service_keys.path)
        error = self.assertRaises(exceptions.UnauthenticatedReplyError, caller.list_jobs)
        self.assertIn('neither the current nor the previous one', str(error))
        self.assert_refused(Refusal.UNKNOWN_KEY, self.last('request'))

    def test_no_key_no_service(self):
        self.own_file()
        caller = self.caller()
        with fixtures.MonkeyPatch('os.geteuid', lambda: 0):
            os.unlink(self.service_keys.path)
        error = self.assertRaises(exceptions.UnauthenticatedReplyError, caller.list_jobs)
        self.assertIn('cannot use its key file', str(error))

    def test_no_key_no_request(self):
        self.own_file()
        caller = self.caller()
        os.chmod(self.keys.path, 0o644)
        self.assertRaises(exceptions.KeyFileError, caller.list_jobs)
        self.assertEqual([], self.seen)

    def test_the_file_is_replaced_while_a_request_is_answered(self):
        self.own_file()
        caller = self.caller()

        original = endpoint.Endpoint.list_jobs

        def list_jobs(*arguments, **options):
            message_keys.rotate(self.service_keys.path)
            message_keys.retire(self.service_keys.path)
            return original(*arguments, **options)

        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.storage_service.endpoint.Endpoint.list_jobs', list_jobs
            )
        )
        endpoint.Endpoint.list_jobs.permission = original.permission
        self.bus = self.serve()
        self.assertRaises(exceptions.UnauthenticatedReplyError, caller.list_jobs)


class ReplyTest(AttackTestCase):
    """A forged "fenced" is worse than none."""

    def assert_not_believed(self, ask, *arguments):
        error = self.assertRaises(exceptions.UnauthenticatedReplyError, ask, *arguments)
        # Those who retry treat it as no answer.
        self.assertIsInstance(error, exceptions.ServiceUnavailableError)
        return str(error)

    def fence(self):
        work = tasks.FenceTask(self.image)
        return self.caller().start('fence', work)

    def test_forged(self):
        done = {'class': 'Job', 'is': {}}
        for reply in (
            None,
            [],
            {},
            {'result': done},
            {'error': 'NotFoundError', 'message': 'volumes/image: there is none'},
            {'refused': 'expired'},
            {'refused': ['x']},
            {'key_id': self.keys.load().current.id, 'content': '{}', 'mac': '0' * 64},
        ):
            self.attack('reply', lambda _message, reply=reply: reply)
            self.assert_not_believed(self.fence)

    def test_any_change_is_noticed(self):
        for change in (
            {'result': {'class': 'set', 'is': []}},
            {'error': 'NotFoundError', 'message': 'x'},
            {'address': {'server': 'elsewhere', 'run_id': 'x'}},
        ):
            self.attack('reply', lambda message, change=change: changed(message, **change))
            self.assertIn('signature is wrong', self.assert_not_believed(self.fence))

    def test_an_error_is_signed_too(self):
        missing = image_types.ImageRef('volumes', names.image_name('former', str(uuid.uuid4())))
        error = self.assertRaises(exceptions.NotFoundError, self.caller().describe, missing)
        self.assertIs(exceptions.NotFoundError, type(error))
        self.attack(
            'reply', lambda message: changed(message, message='volumes/other: there is none')
        )
        self.assert_not_believed(self.caller().describe, missing)

    def test_the_reply_to_another_request(self):
        caller = self.caller()
        caller.describe(self.image)
        old = self.last('reply')
        self.attack('reply', lambda _message: old)
        text = self.assert_not_believed(caller.describe, self.image)
        self.assertIn('it answers another request', text)

    def test_a_request_is_no_reply(self):
        self.attack('reply', lambda _message: self.last('request'))
        self.assertIn('signature is wrong', self.assert_not_believed(self.caller().list_jobs))

    def test_an_exception_that_the_bus_makes(self):
        for error in (
            messaging.RemoteError('NotFoundError', 'there is none', []),
            exceptions.NotFoundError('volumes/image: there is none'),
            KeyError('volumes/image'),
        ):

            def fail(_message, error=error):
                raise error

            self.attack('reply', fail)
            text = self.assert_not_believed(self.caller().describe, self.image)
            self.assertIn('unsigned error', text)

    def test_an_address_again_and_again(self):
        """Signed, but no answer: nothing is asked for ever."""
        address = {'address': {'server': 'one', 'run_id': 'x'}}
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.storage_service.receiver.Receiver._answer', lambda *_: address
            )
        )
        self.bus.verifier.address = message_auth.Address('one', 'x')
        text = self.assert_not_believed(self.caller().remove_snapshot, self.image.snapshot('s'))
        self.assertIn('holds no answer', text)

    def test_a_job_is_asked_for_again(self):
        """Somebody says that it has failed, and later that it is done; neither is believed."""
        replies = [{'error': 'NotFoundError', 'message': 'x'}, {'result': None}]

        def forge(message):
            return replies.pop() if replies else message

        self.attack('reply', forge)
        caller = self.caller()
        caller._sleep = lambda _seconds: None
        report = caller.run('copy', tasks.CopyTask(self.image.snapshot('s'), self.world.vault), 60)
        self.assertEqual(16 * service_world.MIB, report.copied_bytes)
        self.assertEqual([], replies)
