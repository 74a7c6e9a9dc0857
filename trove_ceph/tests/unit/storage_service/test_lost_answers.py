# SPDX-License-Identifier: Apache-2.0
"""The bus loses a message of each verb, so the caller does not know whether it was executed.

Repeated, each verb succeeds, or its error shows that it was executed before.
"""

import dataclasses
import json
import time
import uuid
from typing import Any

import fixtures
import oslo_messaging as messaging
import testscenarios
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import fencing, image_types, names, tasks
from trove_ceph.storage_service import message_keys, rpcapi, transport
from trove_ceph.tests.unit.storage_service import bus, service_world

IMAGE, VAULT, CLONE, TRASHED = (
    names.image_name(kind, str(uuid.uuid4())) for kind in ('restore', 'vault', 'replica', 'former')
)
CLONE_REF = image_types.ImageRef('vault', CLONE)
load_tests = testscenarios.load_tests_apply_scenarios


class LossyBus(bus.Bus):
    """A bus that loses one message of an addressed request, or none.

    :param lost: ``request``, ``answer`` or None
    """

    def __init__(self, service, keys, lost=None):
        super().__init__(service, keys, time.time)
        self._lost = lost

    def call(self, context, method, message):
        is_addressed = json.loads(message['content'])['address'] is not None
        lost = None
        if is_addressed:
            lost, self._lost = self._lost, None
        if lost == 'request':
            raise messaging.MessagingTimeout
        answer = super().call(context, method, message)
        if lost == 'answer':
            raise messaging.MessagingTimeout
        return answer


@dataclasses.dataclass
class Verb:
    """A verb that changes something.

    :param arguments: function of the test that returns the arguments
    :param done: function of the test that returns whether the verb was executed
    :param repeated_error: the error of a repetition after the verb was executed
    """

    name: str
    arguments: Any
    done: Any
    repeated_error: type[Exception] | None = None


def _snapshots(test):
    facts = test.world.storage.describe(test.world.image)
    return [one.name for one in facts.snapshots if not one.removed]


def _trash(test):
    return [one.name for one in test.world.storage.list_trash('volumes')]


def _work(make):
    return lambda test: ('operation', make(test))


def _state(test):
    return test.service.jobs.find('operation').state is tasks.JobState.DONE


VERBS = (
    Verb(
        'create_snapshot',
        lambda test: (test.world.image.snapshot('t'),),
        lambda test: _snapshots(test) == ['s', 't'],
        exceptions.AlreadyExistsError,
    ),
    Verb(
        'remove_snapshot',
        lambda test: (test.world.image.snapshot('s'),),
        lambda test: _snapshots(test) == [],
        exceptions.NotFoundError,
    ),
    Verb(
        'rename_snapshot',
        lambda test: (test.world.image.snapshot('s'), 't'),
        lambda test: _snapshots(test) == ['t'],
        exceptions.NotFoundError,
    ),
    Verb(
        'clone',
        lambda test: (test.world.image.snapshot('s'), CLONE_REF, image_types.Qos(iops=300)),
        lambda test: test.world.storage.describe(CLONE_REF).qos.iops == 300,
    ),
    Verb(
        'set_qos',
        lambda test: (test.world.image, image_types.Qos(iops=300)),
        lambda test: test.world.storage.describe(test.world.image).qos.iops == 300,
    ),
    Verb(
        'trash',
        lambda test: (test.world.image,),
        lambda test: _trash(test) == [IMAGE],
        exceptions.NotFoundError,
    ),
    Verb(
        'restore',
        lambda test: ('volumes', test.trash(), TRASHED),
        lambda test: _trash(test) == [],
        exceptions.NotFoundError,
    ),
    Verb(
        'unfence',
        lambda test: (test.fence(),),
        lambda test: test.world.storage.blocklisted() == frozenset(),
    ),
    Verb(
        'start',
        _work(lambda test: tasks.CopyTask(test.world.image.snapshot('s'), test.world.vault)),
        _state,
    ),
    Verb('start', _work(lambda test: tasks.FlattenTask(test.world.image)), _state),
    Verb('start', _work(lambda test: tasks.FenceTask(test.world.image)), _state),
    Verb('start', _work(lambda test: tasks.PurgeTask('volumes', test.trash())), _state),
)


class LostMessageTest(base.BaseTestCase):
    scenarios = testscenarios.multiply_scenarios(
        [(f'{number} {verb.name}', {'verb': verb}) for number, verb in enumerate(VERBS)],
        [(lost, {'lost': lost}) for lost in ('request', 'answer')],
    )

    def setUp(self):
        super().setUp()
        self.world = service_world.World(IMAGE, VAULT)
        self.service = self.world.service()

    def trash(self):
        """Put another image in the trash, and return its id."""
        image = image_types.ImageRef('volumes', TRASHED)
        self.world.storage.create_image(image, 4 * service_world.MIB, image_types.ImageOptions())
        return self.world.storage.trash(image).image_id

    def fence(self):
        """Fence a client off the image, and return the image."""
        with self.world.storage.open_writer(self.world.image):
            fencing.fence(self.world.storage, self.world.image)
        return self.world.image

    def test_a_repetition_succeeds(self):
        arguments = self.verb.arguments(self)
        keys = message_keys.KeyFile(self.useFixture(fixtures.TempDir()).join('keys.json'))
        message_keys.create(keys.path)
        lossy = LossyBus(self.service, keys, self.lost)
        self.useFixture(
            fixtures.MonkeyPatch('oslo_messaging.get_rpc_client', lambda *_, **__: lossy)
        )
        call = getattr(rpcapi.StorageAPI(transport.Connection(None, keys, 0)), self.verb.name)
        self.assertRaises(exceptions.ServiceUnavailableError, call, *arguments)
        if self.lost == 'answer' and self.verb.repeated_error:
            self.assertRaises(self.verb.repeated_error, call, *arguments)
        else:
            call(*arguments)
        self.assertTrue(self.verb.done(self))
        self.assertEqual([], self.world.held_locks())
