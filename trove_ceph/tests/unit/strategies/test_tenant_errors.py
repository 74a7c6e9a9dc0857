# SPDX-License-Identifier: Apache-2.0
import inspect

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.strategies.backup import tenant_errors

PLACE = 'vault/trove_ceph.vault.x@snapshot-y: pool vault is 97 % full'


class TenantErrorsTest(base.BaseTestCase):
    def test_reveals_nothing_of_the_storage(self):
        known = [kind for _name, kind in inspect.getmembers(exceptions, inspect.isclass)]
        failures = [kind for kind in known if not issubclass(kind, tenant_errors.SHOWN_UNCHANGED)]
        self.assertGreater(len(failures), 20)
        for kind in (*failures, KeyError):
            message = tenant_errors.tenant_message(kind(PLACE))
            self.assertNotIn('vault', message, kind)
            self.assertNotIn('97', message, kind)
            self.assertIn('the log of trove-taskmanager', message)
        self.assertIn('no room', tenant_errors.tenant_message(exceptions.NoSpaceError(PLACE)))

    def test_explains_an_inspection_without_a_verdict(self):
        for kind in (exceptions.InspectionFaultError, exceptions.UnexpectedTransactionsError):
            self.assertIn('proves nothing', tenant_errors.tenant_message(kind(PLACE)))

    def test_shows_what_tenants_can_correct(self):
        error = exceptions.UnsafeSettingsError('instance x: sync_binlog=0')
        self.assertEqual('instance x: sync_binlog=0', tenant_errors.tenant_message(error))

    def test_what_is_in_progress(self):
        error = exceptions.InProgressError('server 7 on host-1 is deleted', 'waits for a server')
        self.assertEqual('waits for a server', tenant_errors.tenant_message(error))
        hidden = tenant_errors.tenant_message(exceptions.InProgressError('server 7 on host-1'))
        self.assertIn('another operation uses it at present', hidden)
        self.assertNotIn('host-1', hidden)

    def test_what_an_operator_has_to_repair(self):
        error = exceptions.OperatorNeededError('server 7 is PAUSED', 'its server is PAUSED')
        self.assertEqual('its server is PAUSED', tenant_errors.tenant_message(error))
        hidden = tenant_errors.tenant_message(exceptions.OperatorNeededError('server 7'))
        self.assertIn('your operator has to repair something', hidden)

    def test_operators_see_everything(self):
        error = exceptions.NoSpaceError(PLACE)
        error.add_note('something is left behind')
        self.assertEqual(
            f'{PLACE}; something is left behind', tenant_errors.operator_message(error)
        )
        self.assertEqual('ValueError', tenant_errors.operator_message(ValueError()))

    def test_names_the_subject_once(self):
        for message in ('backup 7 is failed', 'backup 7: it is failed', 'it is failed'):
            error = self.assertRaises(exceptions.TroveCephError, self.translate, message)
            self.assertEqual(1, str(error).count('backup 7'))
            self.assertTrue(str(error).startswith('backup 7'))

    def translate(self, message):
        with tenant_errors.translated_errors('backup 7'):
            raise exceptions.InvalidBackupError(message)
