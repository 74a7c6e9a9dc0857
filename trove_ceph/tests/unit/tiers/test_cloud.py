# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.tiers import fake_cloud
from trove_ceph.tiers import cinder, resources, trove

FAST = resources.VolumeType('fast', 'fast', 'NVMe', True, None)
LIMITS = resources.QosSpecs('fast', 'front-end', {'total_iops_sec': '100'})


class CinderTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.fake = fake_cloud.FakeCinder(backends=['fast', 'slow'])
        self.cinder = cinder.Cinder(self.fake.client())

    def test_type_round_trip(self):
        hidden = resources.VolumeType('hidden', 'slow', '', False, None)
        for volume_type in (FAST, hidden):
            self.cinder.create_type(volume_type)
        state = self.cinder.observe()
        self.assertEqual({'fast': FAST, 'hidden': hidden}, state.types)
        self.assertEqual({'id-of-fast': 'fast', 'id-of-hidden': 'hidden'}, state.type_names)
        self.assertEqual({'fast', 'slow'}, state.backends)

    def test_limits_round_trip(self):
        self.cinder.create_qos(LIMITS)
        self.assertEqual({'fast': LIMITS}, self.cinder.observe().qos)
        self.cinder.set_qos('fast', 'total_bytes_sec', '5')
        self.cinder.set_qos('fast', 'total_iops_sec', None)
        self.cinder.set_qos('fast', 'consumer', 'both')
        expected = resources.QosSpecs('fast', 'both', {'total_bytes_sec': '5'})
        self.assertEqual({'fast': expected}, self.cinder.observe().qos)

    def test_removes_limits_that_no_type_uses(self):
        self.cinder.create_qos(LIMITS)
        self.cinder.create_type(FAST)
        self.cinder.set_type('fast', 'qos', 'fast')
        self.assertRaises(exceptions.ServiceUnavailableError, self.cinder.remove_qos, 'fast')
        self.cinder.set_type('fast', 'qos', None)
        self.cinder.remove_qos('fast')
        self.assertEqual({}, self.cinder.observe().qos)

    def test_volumes(self):
        one = self.fake.add_volume('fast', 5, backend='quick', status='in-use')
        moved = self.fake.add_volume(None, 7, **{'os-vol-mig-status-attr:name_id': 'other'})
        new = self.fake.add_volume('slow', 1, **{'os-vol-host-attr:host': None})
        expected = [
            resources.VolumeOfTier(one['id'], one['id'], 'quick', 'fast', 5, 'in-use'),
            resources.VolumeOfTier(moved['id'], 'other', 'fast', None, 7, 'available'),
            resources.VolumeOfTier(new['id'], new['id'], None, 'slow', 1, 'available'),
        ]
        self.assertEqual(expected, self.cinder.volumes())
        for volume in expected:
            self.assertEqual(volume, self.cinder.find_volume(volume.id))
        self.assertIsNone(self.cinder.find_volume('gone'))
        self.assertEqual('volume-other', expected[1].image_name)
        self.assertEqual({'fast': (5,), 'slow': (1,)}, self.cinder.observe().volumes)

    def test_attributes_of_a_type(self):
        self.cinder.create_type(FAST)
        self.cinder.set_type('fast', 'backend', 'slow')
        self.cinder.set_type('fast', 'description', 'Disks')
        self.cinder.set_type('fast', 'public', False)
        expected = resources.VolumeType('fast', 'slow', 'Disks', False, None)
        self.assertEqual(expected, self.cinder.observe().types['fast'])

    def test_replaces_limits_of_a_type(self):
        self.cinder.create_type(FAST)
        self.cinder.create_qos(LIMITS)
        self.cinder.create_qos(resources.QosSpecs('other', 'front-end', {}))
        for name in ('other', 'fast', 'fast', None):
            self.cinder.set_type('fast', 'qos', name)
            self.assertEqual(name, self.cinder.observe().types['fast'].qos)

    def test_every_page_is_read(self):
        self.fake.page = 2
        for number in range(5):
            self.fake.add_volume('fast', number)
        for number in range(3):
            self.cinder.create_type(resources.VolumeType(f'type{number}', 'x', '', True, None))
        state = self.cinder.observe()
        self.assertEqual({'fast': (0, 1, 2, 3, 4)}, state.volumes)
        self.assertEqual(['type0', 'type1', 'type2'], sorted(state.types))

    def test_volumes_are_not_read_again(self):
        self.fake.add_volume('fast', 1)
        known = self.cinder.observe()
        self.fake.volumes.clear()
        self.cinder.create_type(FAST)
        state = self.cinder.observe(known)
        self.assertEqual({'fast': (1,)}, state.volumes)
        self.assertIn('fast', state.types)

    def test_type_is_private_until_it_has_its_back_end(self):
        self.fake.post = self._refuse_extra_specs(self.fake.post)
        self.assertRaises(exceptions.ServiceUnavailableError, self.cinder.create_type, FAST)
        expected = resources.VolumeType('fast', None, 'NVMe', False, None)
        self.assertEqual(expected, self.cinder.observe().types['fast'])

    def _refuse_extra_specs(self, post):
        def refusing(path, json):
            if path.endswith('extra_specs'):
                return self.fake._respond({'computeFault': {'message': 'no'}}, 500)
            return post(path, json)

        return refusing

    def test_refusal_names_the_request(self):
        self.cinder.create_type(FAST)
        self.fake.add_volume('fast', 1)
        error = self.assertRaises(
            exceptions.ServiceUnavailableError, self.cinder.set_type, 'fast', 'backend', 'slow'
        )
        self.assertIn('Cinder failed at setting backend of volume type fast', str(error))
        self.assertIn('Volume Type is in use', str(error))
        self.fake.failure = 503
        self.assertRaises(exceptions.ServiceUnavailableError, self.cinder.observe)

    def test_missing_type(self):
        error = self.assertRaises(
            exceptions.ServiceUnavailableError, self.cinder.set_type, 'fast', 'qos', None
        )
        self.assertEqual('volume type fast is gone from Cinder', str(error))


class TroveTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.fake = fake_cloud.FakeTroveManage()
        self.trove = trove.Trove('trove-manage', 'trove.conf', run=self.fake)

    def _observe(self, version='mysql/9.7.4'):
        return self.trove.observe([version]).associations[version]

    def test_associations(self):
        self.assertEqual(frozenset(), self._observe())
        for name in ('fast', 'with, a comma: and more'):
            self.trove.associate('mysql/9.7.4', name)
        self.assertEqual({'fast', 'with, a comma: and more'}, self._observe())
        self.trove.dissociate('mysql/9.7.4', 'fast')
        self.assertEqual({'with, a comma: and more'}, self._observe())

    def test_missing_version(self):
        self.assertIsNone(self._observe('mysql/1'))
        self.fake.output = 'DBDatastore Not Found'
        self.assertIsNone(self._observe('maria/1'))

    def test_unexpected_output_is_an_error(self):
        self.fake.output = '(pymysql.err.OperationalError) Access denied'
        error = self.assertRaises(exceptions.ServiceUnavailableError, self._observe)
        self.assertIn('volume types of mysql/9.7.4: (pymysql.err', str(error))
