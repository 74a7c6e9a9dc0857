# SPDX-License-Identifier: Apache-2.0
"""The branches of the errors: those of storage, and those of records."""

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.strategies.backup import tenant_errors

#: What each part of the hierarchy is for is in its docstring.
OF_RECORDS = {
    'ClaimLostError',
    'InvalidTransitionError',
    'RecordExistsError',
    'RecordNotFoundError',
}


def names_below(kind):
    """Return the names of all classes below one."""
    return {one.__name__ for one in kind.__subclasses__()}.union(
        *(names_below(one) for one in kind.__subclasses__())
    )


class BranchesTest(base.BaseTestCase):
    def test_errors_of_records_are_no_errors_of_storage(self):
        self.assertEqual(OF_RECORDS, names_below(exceptions.RecordError))
        self.assertEqual(set(), OF_RECORDS & names_below(exceptions.StorageError))
        self.assertTrue(issubclass(exceptions.RecordError, exceptions.TroveCephError))

    def test_each_error_has_a_promise(self):
        for name in names_below(exceptions.TroveCephError):
            kind = getattr(exceptions, name, None)
            if kind is not None:
                promise, _, _ = (kind.__doc__ or '').partition('\n\n')
                self.assertRegex(promise, r'\.$', name)

    def test_tenants_are_told_of_each_by_words(self):
        for name in OF_RECORDS:
            reason = tenant_errors.tenant_message(getattr(exceptions, name)('row 7'))
            self.assertNotIn('storage', reason, name)
            self.assertNotIn('unexpected', reason, name)
            self.assertNotIn('row 7', reason, name)
