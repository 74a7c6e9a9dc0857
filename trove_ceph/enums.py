# SPDX-License-Identifier: Apache-2.0
"""Choices that options, commands and strategies share."""

import enum


class QuiesceLevel(enum.StrEnum):
    """How a server is held while its snapshot is made."""

    NONE = 'none'
    DDL = 'ddl'
    FREEZE = 'freeze'


class UnsafeAction(enum.StrEnum):
    """What becomes of a backup whose level the settings of the server make unsafe."""

    REFUSE = 'refuse'
    RAISE = 'raise'


class VerifyWhen(enum.StrEnum):
    """Which backups are verified without anybody asking for it."""

    NEVER = 'never'
    COPIED = 'copied'
    ALWAYS = 'always'
