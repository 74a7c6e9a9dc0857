# SPDX-License-Identifier: Apache-2.0
"""Compare what Trove is with what trove_ceph was written for."""

import importlib.metadata
import inspect

from oslotest import base
from trove.common import cfg as trove_cfg

#: Whether the tests run on the oldest supported release of Trove.
IS_TROVE_25 = importlib.metadata.version('trove').startswith('25.')
#: The parameters of taskmanager.Manager.create_instance.
CREATE_INSTANCE = (
    'context, instance_id, name, flavor, image_id, databases, users, datastore_manager, packages, '
    'volume_size, backup_id, availability_zone, root_password, nics, overrides, slave_of_id, '
    'cluster_config, volume_type, modules, locality, access=None, ds_version=None'
)


class ContractTestCase(base.BaseTestCase):
    """A test that fails when a new version of Trove changes what trove_ceph relies on.

    Such a failure is no defect of the test: read what the new version does there, adapt the module
    that the test names, and then the test.
    """

    def assert_signatures(self, *expected):
        """Compare functions with their parameters.

        :param expected: pairs of a function and its parameters, without ``self``
        """
        for function, parameters in expected:
            found = str(inspect.signature(function))
            found = found.removeprefix('(').removesuffix(')')
            found = found.removeprefix('self, ').removeprefix('self')
            self.assertEqual(parameters, found, f'{function.__module__}.{function.__qualname__}')

    def assert_uses(self, function, *names):
        """Check that a function of Trove reads attributes, globals or methods by their names."""
        code = inspect.unwrap(function).__code__
        self.assertEqual(set(), set(names) - set(code.co_names), function.__qualname__)

    def assert_options(self, **expected):
        """Check that Trove has options, and their defaults."""
        defaults = {opt.dest: opt.default for _group, opts in trove_cfg.list_opts() for opt in opts}
        for name, default in expected.items():
            self.assertEqual(default, defaults.get(name, 'no such option'), name)

    def assert_columns(self, model, *names):
        """Check that a table has columns."""
        columns = {column.name for column in model.__table__.columns}
        self.assertEqual(set(), set(names) - columns, model.__name__)
