# SPDX-License-Identifier: Apache-2.0
"""The trash of Ceph, with a stand-in for librbd: images of which Ceph misses a part."""

import contextlib
import datetime
import errno
import importlib
import sys
from unittest import mock

from oslotest import base

from trove_ceph.storage import ceph

NOW = datetime.datetime(2026, 5, 1, 12)


class MissingError(Exception):
    errno = errno.ENOENT


def stand_in(**members):
    """Return a stand-in for a library of Ceph, all of whose errors are that something misses."""
    return mock.MagicMock(Error=MissingError, **members)


class TrashTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.entries = {'whole': 'a', 'broken': 'b'}
        #: What happens when the image is opened that cannot be.
        self.on_open = lambda: None
        rbd = stand_in(ImageNotFound=MissingError, Image=self.open)
        self.enterContext(
            mock.patch.dict(
                sys.modules, rados=stand_in(ObjectNotFound=MissingError, Rados=object), rbd=rbd
            )
        )
        # So that other tests import the package as before.
        self.enterContext(mock.patch.dict(vars(ceph)))
        for name in [name for name in sys.modules if name.startswith('trove_ceph.storage.ceph.')]:
            del sys.modules[name]
        connection = importlib.import_module('trove_ceph.storage.ceph.connection')
        backend = importlib.import_module('trove_ceph.storage.ceph.backend')
        link = connection.Connection('ceph.conf', 'client.test')
        link.pool = lambda _name: contextlib.nullcontext(mock.MagicMock())
        self.storage = backend.CephBackend(link)
        self.enterContext(
            mock.patch.object(backend.children.Children, 'all', mock.Mock(return_value=()))
        )
        calls = self.storage._rbd
        calls.trash_list.side_effect = lambda _context: [{'id': one} for one in self.entries]
        calls.trash_get.side_effect = self.get

    def get(self, _context, image_id):
        if image_id not in self.entries:
            raise MissingError
        return {'name': self.entries[image_id], 'deletion_time': NOW}

    def open(self, _context, image_id, **_options):
        if image_id == 'broken':
            self.on_open()
            raise MissingError
        return mock.MagicMock(**{'__enter__.return_value.size.return_value': 7})

    def listed(self):
        return [(one.image_id, one.name, one.size_bytes) for one in self.storage.list_trash('pool')]

    def test_an_image_that_cannot_be_opened_is_listed(self):
        self.assertEqual([('whole', 'a', 7), ('broken', 'b', None)], self.listed())

    def test_an_image_that_is_purged_meanwhile_is_not_listed(self):
        self.on_open = lambda: self.entries.pop('broken')
        self.assertEqual([('whole', 'a', 7)], self.listed())
