# SPDX-License-Identifier: Apache-2.0
"""Errors, one class for each reaction of the caller."""


class ClusterError(Exception):
    """The operation failed; the message has the observed and the expected state."""


class UsageError(ClusterError):
    """The request is impossible: correct the arguments or the settings and repeat it."""


class DaemonError(ClusterError):
    """A daemon did not start or stop in time; its log has the reason."""


class MonitorError(ClusterError):
    """The monitor refused a command or did not answer."""
