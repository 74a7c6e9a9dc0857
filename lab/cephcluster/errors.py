# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, split by what the caller can do about it."""


class ClusterError(Exception):
    """The operation could not be done; the message says what was seen and what was wanted."""


class UsageError(ClusterError):
    """The request itself cannot be met: correct the arguments or the description and repeat."""


class DaemonError(ClusterError):
    """A daemon did not start or stop in time; its log tells why."""


class MonitorError(ClusterError):
    """The monitor refused a command or did not answer."""
