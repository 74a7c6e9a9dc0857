# SPDX-License-Identifier: Apache-2.0
"""The entry point of Tempest."""

import os

from tempest.test_discover import plugins

from trove_ceph_tempest_plugin import config


class TroveCephTempestPlugin(plugins.TempestPlugin):
    """Scenarios that use the clients and options of trove-tempest-plugin."""

    def load_tests(self):
        package = os.path.dirname(os.path.abspath(__file__))
        return os.path.join(package, 'tests'), os.path.dirname(package)

    def register_opts(self, conf):
        conf.register_group(config.GROUP)
        conf.register_opts(config.OPTS, group=config.GROUP)

    def get_opt_lists(self):
        return [(config.GROUP.name, config.OPTS)]
