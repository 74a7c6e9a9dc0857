# SPDX-License-Identifier: Apache-2.0
"""An attacker on the bus forges, changes and replays messages, and impersonates the service.

Service and caller are real; the test controls the bus between them.
"""

import json
import os
import threading
import uuid

import fixtures
import oslo_messaging as messaging
import testscenarios
from oslotest import base

from trove_ceph import exceptions, message_auth
from trove_ceph.message_auth import Refusal
from trove_ceph.storage import image_types, names, tasks
from trove_ceph.storage_service import endpoint, message_keys, rpcapi, signed_client
from trove_ceph.storage_service import transport as storage_transport
from trove_ceph.tests.unit.storage_service import bus, service_world

IMAGE, VAULT = (names.image_name(kind, str(uuid.uuid4())) for kind in ('restore', 'vault'))
SKEW_SEC = 30
TIMEOUT_SEC = 180
NOW = 1_700_000_000.0
load_tests = testscenarios.load_tests_apply_scenarios


def changed(message, /, **content):
    """Return a message with changed content and the old signature."""
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
        self.recorded = []
        self.bus = self.serve()
        self.useFixture(
            fixtures.MonkeyPatch('oslo_messaging.get_rpc_client', lambda *_, **__: self.bus)
        )
        self.log = self.useFixture(fixtures.FakeLogger())

    def serve(self):
        """Start a new copy of the service on the bus, with the same cluster and clock."""
        return bus.Bus(
            self.world.service(), self.service_keys, lambda: self.service_now, self.tap, SKEW_SEC
        )

    def tap(self, kind, message):
        """Record a message and deliver it unchanged."""
        self.recorded.append((kind, message))
        return message

    def attack(self, kind, change):
        """Change all messages of a kind in transit."""

        def tap(passing, message):
            self.recorded.append((passing, message))
            return change(message) if passing == kind else message

        self.bus._tap = tap

    def caller(self):
        connection = storage_transport.Connection(None, self.keys, SKEW_SEC)
        client = signed_client.SignedClient(
            connection, messaging.Target(topic=rpcapi.TOPIC), TIMEOUT_SEC, lambda: self.now
        )
        api = rpcapi.StorageAPI(connection, TIMEOUT_SEC)
        api._client = client
        return api

    def snapshots(self):
        return self.world.storage.describe(self.image).snapshot_names

    def last(self, kind):
        return [message for recorded, message in self.recorded if recorded == kind][-1]

    def send(self, message):
        """Put a message on the bus as the attacker; return the unsigned refusal, or the reply."""
        return self.bus.call({}, signed_client.METHOD, message)

    def assert_refused(self, reason, message):
        before = len(self.world.cluster.entries), self.snapshots()
        self.assertEqual({'refused': str(reason)}, self.send(message))
        self.assertEqual(before, (len(self.world.cluster.entries), self.snapshots()))


class RequestTest(AttackTestCase):
    def test_a_signed_request_is_executed_once(self):
        self.caller().create_snapshot(self.image.snapshot('t'))
        self.assertEqual(['s', 't'], self.snapshots())
        requests = [json.loads(one['content']) for kind, one in self.recorded if kind == 'request']
        # First without an address, then for this copy, with another nonce.
        self.assertEqual([None, 'one'], [one['address'] and 'one' for one in requests])
        self.assertNotEqual(requests[0]['nonce'], requests[1]['nonce'])
        for name in ('verb', 'arguments', 'issued_at', 'expires_at'):
            self.assertIn(name, requests[0])

    def test_refuses_a_message_without_signature(self):
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

    def test_refuses_a_forged_message(self):
        content = json.dumps({'format': 1, 'verb': 'list_jobs'})
        key_id = self.keys.load().current.id
        for mac in ('', '0' * 64, 'ü', '\ud800'):
            message = {'key_id': key_id, 'content': content, 'mac': mac}
            self.assertEqual({'refused': 'bad-signature'}, self.bus.receiver.request({}, message))
        message = {'key_id': key_id, 'content': '\ud800', 'mac': '0' * 64}
        self.assertEqual({'refused': 'bad-signature'}, self.bus.receiver.request({}, message))

    def test_refuses_a_wrong_key(self):
        path = self.useFixture(fixtures.TempDir()).join('own.json')
        message_keys.create(path)
        self.keys = message_keys.KeyFile(path)
        error = self.assertRaises(exceptions.UnauthenticatedReplyError, self.caller().list_jobs)
        self.assertIn('neither the current nor the previous one', str(error))
        # Even with the id of the right one.
        content = json.loads(open(path).read())
        content['current']['id'] = self.service_keys.load().current.id
        with open(path, 'w') as file:
            json.dump(content, file)
        error = self.assertRaises(exceptions.UnauthenticatedReplyError, self.caller().list_jobs)
        self.assertIn('signature is wrong', str(error))

    def test_refuses_a_reply_as_a_request(self):
        self.caller().list_jobs()
        self.assert_refused(Refusal.BAD_SIGNATURE, self.last('reply'))

    def test_detects_any_change(self):
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
        # Even one without effect on the meaning.
        self.assert_refused(Refusal.BAD_SIGNATURE, message | {'content': message['content'] + ' '})
        message_keys.rotate(self.keys.path)
        self.assert_refused(
            Refusal.BAD_SIGNATURE, message | {'key_id': self.keys.load().current.id}
        )

    def test_a_request_changed_in_transit_is_refused(self):
        self.attack('request', lambda message: changed(message, verb='list_jobs'))
        error = self.assertRaises(
            exceptions.UnauthenticatedReplyError,
            self.caller().remove_snapshot,
            self.image.snapshot('s'),
        )
        self.assertIn('a reply without signature refuses the request', str(error))
        self.assertEqual(['s'], self.snapshots())
        self.assertIn('Refused a request', self.log.output)

    def test_refuses_a_replay(self):
        self.caller().remove_snapshot(self.image.snapshot('s'))
        message = self.last('request')
        self.world.storage.create_snapshot(self.image.snapshot('s'))
        for seconds in (0, 1, 3, TIMEOUT_SEC + SKEW_SEC - 1):
            self.service_now = NOW + seconds
            self.assert_refused(Refusal.REPLAYED, message)
        self.service_now = NOW + TIMEOUT_SEC + SKEW_SEC + 1
        self.assert_refused(Refusal.EXPIRED, message)

    def test_refuses_a_replay_after_a_restart(self):
        self.caller().remove_snapshot(self.image.snapshot('s'))
        message = self.last('request')
        self.world.storage.create_snapshot(self.image.snapshot('s'))
        # The same name, another run.
        self.bus = self.serve()
        self.assert_refused(Refusal.OTHER_RECIPIENT, message)

    def test_a_request_without_address_changes_nothing(self):
        self.caller().remove_snapshot(self.image.snapshot('s'))
        unaddressed = next(one for kind, one in self.recorded if kind == 'request')
        self.world.storage.create_snapshot(self.image.snapshot('s'))
        self.assert_refused(Refusal.REPLAYED, unaddressed)
        self.bus = self.serve()
        reply = self.send(unaddressed)
        self.assertIn('address', json.loads(reply['content']))
        self.assertEqual(['s'], self.snapshots())

    def test_refuses_a_replay_after_the_clock_is_set_back(self):
        self.caller().remove_snapshot(self.image.snapshot('s'))
        message = self.last('request')
        self.world.storage.create_snapshot(self.image.snapshot('s'))
        self.now = self.service_now = NOW + 3600
        self.caller().list_jobs()
        self.service_now = NOW
        self.assert_refused(Refusal.REPLAYED, message)
        # New requests are accepted at once.
        self.now = NOW + 1
        self.caller().create_snapshot(self.image.snapshot('t'))

    def test_a_duplicate_waits_for_the_first_answer(self):
        """Otherwise the refusal might reach the caller before the answer."""
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

    def test_nonces_of_expired_requests_are_dropped(self):
        caller = self.caller()
        for second in range(0, 3600, 60):
            self.now = self.service_now = NOW + second
            caller.list_jobs()
        limit = (TIMEOUT_SEC + SKEW_SEC) // 60 + 1
        self.assertLessEqual(len(self.bus.verifier._nonces), limit)

    def test_refuses_an_invalid_lifetime(self):
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

    def test_the_lifetime_of_a_request_is_limited(self):
        _, request = message_auth.Caller(self.keys, lambda: NOW).sign('describe', {}, 1e9)
        self.assertEqual(NOW + message_auth.MAX_LIFETIME_SEC, request.expires_at)

    def test_refuses_an_unknown_verb(self):
        for verb in ('shutdown', '_locked', 'target', '__init__'):
            error = self.assertRaises(
                exceptions.InvalidRequestError, self.caller()._client.call, {}, verb
            )
            self.assertIn('unknown verb', str(error))

    def test_refuses_wrong_arguments(self):
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

    def test_the_clock_of_the_caller_differs(self):
        self.now = NOW + self.seconds
        create = self.caller().create_snapshot
        if self.is_accepted:
            create(self.image.snapshot('t'))
            self.assertEqual(['s', 't'], self.snapshots())
        else:
            error = self.assertRaises(
                exceptions.UnauthenticatedReplyError, create, self.image.snapshot('t')
            )
            self.assertIn('check that the clocks of service and caller agree', str(error))
            self.assertEqual(['s'], self.snapshots())


class KeysTest(AttackTestCase):
    def own_file(self):
        """Give the caller its own copy of the key file, as on another host."""
        path = self.useFixture(fixtures.TempDir()).join('keys.json')
        self.keys = message_keys.KeyFile(path)
        self.copy_to_caller()

    def copy_to_caller(self):
        with open(self.service_keys.path) as source, open(self.keys.path, 'w') as target:
            target.write(source.read())
        os.chmod(self.keys.path, 0o600)

    def test_the_key_is_rotated_at_the_service_first(self):
        self.own_file()
        caller = self.caller()
        message_keys.rotate(self.service_keys.path)
        caller.list_jobs()
        self.assertEqual(self.keys.load().current.id, self.last('reply')['key_id'])
        self.copy_to_caller()
        caller.list_jobs()
        message_keys.retire(self.service_keys.path)
        caller.list_jobs()

    def test_the_previous_key_is_retired(self):
        self.own_file()
        caller = self.caller()
        caller.list_jobs()
        message_keys.rotate(self.service_keys.path)
        message_keys.retire(self.service_keys.path)
        error = self.assertRaises(exceptions.UnauthenticatedReplyError, caller.list_jobs)
        self.assertIn('neither the current nor the previous one', str(error))
        self.assert_refused(Refusal.UNKNOWN_KEY, self.last('request'))

    def test_a_service_without_key_refuses(self):
        self.own_file()
        caller = self.caller()
        with fixtures.MonkeyPatch('os.geteuid', lambda: 0):
            os.unlink(self.service_keys.path)
        error = self.assertRaises(exceptions.UnauthenticatedReplyError, caller.list_jobs)
        self.assertIn('cannot use its key file', str(error))

    def test_a_caller_without_key_sends_nothing(self):
        self.own_file()
        caller = self.caller()
        os.chmod(self.keys.path, 0o644)
        self.assertRaises(exceptions.KeyFileError, caller.list_jobs)
        self.assertEqual([], self.recorded)

    def test_the_key_is_retired_while_a_request_is_answered(self):
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
    """A forged proof of a fence would be worse than no answer."""

    def assert_not_accepted(self, call, *arguments):
        error = self.assertRaises(exceptions.UnauthenticatedReplyError, call, *arguments)
        # Callers that retry treat it as no answer.
        self.assertIsInstance(error, exceptions.ServiceUnavailableError)
        return str(error)

    def fence(self):
        work = tasks.FenceTask(self.image)
        return self.caller().start('fence', work)

    def test_refuses_a_forged_message(self):
        done = {'class': 'Job', 'is': {}}
        for reply in (
            None,
            [],
            {},
            {'result': done},
            {'error': 'NotFoundError', 'message': 'volumes/image: does not exist'},
            {'refused': 'expired'},
            {'refused': ['x']},
            {'key_id': self.keys.load().current.id, 'content': '{}', 'mac': '0' * 64},
        ):
            self.attack('reply', lambda _message, reply=reply: reply)
            self.assert_not_accepted(self.fence)

    def test_detects_any_change(self):
        for change in (
            {'result': {'class': 'set', 'is': []}},
            {'error': 'NotFoundError', 'message': 'x'},
            {'address': {'server': 'elsewhere', 'run_id': 'x'}},
        ):
            self.attack('reply', lambda message, change=change: changed(message, **change))
            self.assertIn('signature is wrong', self.assert_not_accepted(self.fence))

    def test_an_error_is_signed(self):
        missing = image_types.ImageRef('volumes', names.image_name('former', str(uuid.uuid4())))
        error = self.assertRaises(exceptions.NotFoundError, self.caller().describe, missing)
        self.assertIs(exceptions.NotFoundError, type(error))
        self.attack(
            'reply', lambda message: changed(message, message='volumes/other: does not exist')
        )
        self.assert_not_accepted(self.caller().describe, missing)

    def test_refuses_the_reply_to_another_request(self):
        caller = self.caller()
        caller.describe(self.image)
        old = self.last('reply')
        self.attack('reply', lambda _message: old)
        text = self.assert_not_accepted(caller.describe, self.image)
        self.assertIn('it answers another request', text)

    def test_refuses_a_request_as_a_reply(self):
        self.attack('reply', lambda _message: self.last('request'))
        self.assertIn('signature is wrong', self.assert_not_accepted(self.caller().list_jobs))

    def test_refuses_an_unsigned_exception(self):
        for error in (
            messaging.RemoteError('NotFoundError', 'does not exist', []),
            exceptions.NotFoundError('volumes/image: does not exist'),
            KeyError('volumes/image'),
        ):

            def fail(_message, error=error):
                raise error

            self.attack('reply', fail)
            text = self.assert_not_accepted(self.caller().describe, self.image)
            self.assertIn('unsigned error', text)

    def test_refuses_a_second_address(self):
        """The reply is signed but has no result: the caller does not repeat the request again."""
        address = {'address': {'server': 'one', 'run_id': 'x'}}
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.storage_service.receiver.Receiver._answer', lambda *_: address
            )
        )
        self.bus.verifier.address = message_auth.Address('one', 'x')
        text = self.assert_not_accepted(self.caller().remove_snapshot, self.image.snapshot('s'))
        self.assertIn('has no result', text)

    def test_forged_states_of_a_job_are_ignored(self):
        """An attacker reports that the job failed, and later that it is done."""
        replies = [{'error': 'NotFoundError', 'message': 'x'}, {'result': None}]

        def forge(message):
            return replies.pop() if replies else message

        self.attack('reply', forge)
        caller = self.caller()
        caller._sleep = lambda _seconds: None
        report = caller.run('copy', tasks.CopyTask(self.image.snapshot('s'), self.world.vault), 60)
        self.assertEqual(16 * service_world.MIB, report.copied_bytes)
        self.assertEqual([], replies)
