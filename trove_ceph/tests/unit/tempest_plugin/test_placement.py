# SPDX-License-Identifier: Apache-2.0
"""Tests of the check of an image's placement."""

from oslotest import base
from tempest.lib import exceptions

from trove_ceph_tempest_plugin import ceph, placement

IMAGE = ceph.Image('volume-1', 'fast', 'fast', 'rbd_data.1', 2**30, 2**22)


class FakeCluster:
    """Two hosts with nvme and hdd OSDs; ``mapped`` gives the OSDs of each object."""

    def __init__(self, mapped):
        self.mapped = mapped

    def objects(self, image):
        return list(self.mapped)

    def osds_of(self, pool, objects):
        return {name: self.mapped[name] for name in objects}

    def osds(self):
        return {
            number: ceph.Osd(
                number, device_class, {'osd': f'osd.{number}', 'host': host, 'root': 'default'}
            )
            for number, device_class, host in (
                (0, 'nvme', 'a'),
                (1, 'nvme', 'b'),
                (2, 'hdd', 'a'),
                (3, 'nvme', 'a'),
            )
        }


class ParseTest(base.BaseTestCase):
    def test_device_class_only(self):
        self.assertEqual(
            {'fast': placement.Expected('pool', 'nvme', 1, '')}, placement.parse(['fast:pool:nvme'])
        )

    def test_copies_and_failure_domain(self):
        self.assertEqual(
            {
                'fast': placement.Expected('pool', 'nvme', 3, 'host'),
                'slow': placement.Expected('other', 'hdd'),
            },
            placement.parse(['fast:pool:nvme:3:host', 'slow:other:hdd']),
        )

    def test_refuses_malformed_items(self):
        for item in ('fast', 'fast:pool', 'fast:pool:nvme:2', 'fast:pool:nvme:two:host'):
            error = self.assertRaises(exceptions.InvalidConfiguration, placement.parse, [item])
            self.assertIn(item, str(error))


class SurveyTest(base.BaseTestCase):
    def _survey(self, mapped, *expected):
        return placement.survey(
            FakeCluster(mapped), IMAGE, placement.Expected('fast', 'nvme', *expected)
        )

    def test_all_objects_as_expected(self):
        figures, faults = self._survey({'x': [0, 1], 'y': [1, 3]}, 2, 'host')
        self.assertEqual([], faults)
        self.assertEqual(2, figures['objects'])
        self.assertEqual({'osd.0': 1, 'osd.1': 2, 'osd.3': 1}, figures['copies_by_osd'])
        self.assertEqual(['nvme'], figures['device_classes'])

    def test_one_copy_on_another_class(self):
        _, faults = self._survey({'x': [0, 1], 'y': [1, 2]})
        self.assertEqual(1, len(faults))
        self.assertIn('osd.2 of class hdd holds 1', faults[0])

    def test_copies_in_one_failure_domain(self):
        _, faults = self._survey({'x': [0, 1], 'y': [0, 3]}, 2, 'host')
        self.assertEqual(1, len(faults))
        self.assertIn('y is in 1 buckets of type host, expected 2', faults[0])

    def test_too_few_copies(self):
        _, faults = self._survey({'x': [0]}, 2, 'osd')
        self.assertIn('x is in 1 buckets of type osd', faults[0])

    def test_empty_image_is_a_fault(self):
        _, faults = self._survey({})
        self.assertEqual(['fast/volume-1 has no objects'], faults)
