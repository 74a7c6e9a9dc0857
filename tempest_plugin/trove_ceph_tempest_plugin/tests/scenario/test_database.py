# SPDX-License-Identifier: Apache-2.0
"""The life cycle of a database, on each configured volume type."""

from trove_ceph_tempest_plugin.tests import base
from trove_ceph_tempest_plugin.tests.scenario import (
    accounts,
    backup,
    configuration,
    deletion,
    load,
    placement,
    rebuild,
    resize,
    restart,
)


class TestProvisioning(placement.PlacementScenario, load.LoadScenario, deletion.DeletionScenario):
    """Scenarios that depend on the volume type: placement and speed of the data."""


class TestDatabase(
    TestProvisioning,
    accounts.AccountScenario,
    backup.BackupScenario,
    configuration.ConfigurationScenario,
    rebuild.RebuildScenario,
    resize.ResizeScenario,
    restart.RestartScenario,
):
    """All scenarios on one database."""


def load_tests(loader, tests, pattern):
    return base.on_volume_types(loader, everywhere=TestProvisioning, first=TestDatabase)
