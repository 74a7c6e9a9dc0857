# SPDX-License-Identifier: Apache-2.0
"""Enumerations that options, commands and strategies share."""

import enum


class QuiesceLevel(enum.StrEnum):
    """How a server is quiesced while its snapshot is created."""

    NONE = 'none'
    DDL = 'ddl'
    FREEZE = 'freeze'


class UnsafeAction(enum.StrEnum):
    """What to do if the settings of the server make the quiesce level unsafe."""

    REFUSE = 'refuse'
    RAISE = 'raise'


class VerifyWhen(enum.StrEnum):
    """Which backups are verified automatically."""

    NEVER = 'never'
    COPIED = 'copied'
    ALWAYS = 'always'


class DeviceClass(enum.StrEnum):
    """What a device is made of; the value is the name of Ceph's device class."""

    NVME = 'nvme'
    SSD = 'ssd'
    HDD = 'hdd'

    @property
    def is_flash(self) -> bool:
        """Whether the device has no moving parts."""
        return self is not DeviceClass.HDD
