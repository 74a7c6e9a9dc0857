# SPDX-License-Identifier: Apache-2.0
"""All checks, in the order in which they are run."""

from trove_ceph.doctor import (
    backup_checks,
    ceph_checks,
    clone_checks,
    cloud_checks,
    golden_checks,
    layout_checks,
    tier_checks,
    version_checks,
)
from trove_ceph.doctor.check import Check

ALL: tuple[Check, ...] = (
    *ceph_checks.CHECKS,
    *layout_checks.CHECKS,
    *tier_checks.CHECKS,
    *cloud_checks.CHECKS,
    *golden_checks.CHECKS,
    *clone_checks.CHECKS,
    *version_checks.CHECKS,
    *backup_checks.CHECKS,
)
