# SPDX-License-Identifier: Apache-2.0
"""Tell damage of a backup from faults of what it is looked at with.

A backup is called damaged for positive evidence alone: a statement about the *data*, such as that a
page has another checksum than it says, from a program that could read them. Everything else, known
or not, is a fault of the host, of Ceph or of the server, and ends the inspection with an error that
is tried again. So the lists below name what is evidence; what they do not name is none.

The messages are those of MySQL 8.0 to 9.x (``share/messages_to_error_log.txt``,
``share/messages_to_clients.txt``, ``storage/innobase``) and of the XFS of Linux, whose
``EFSCORRUPTED`` is ``EUCLEAN`` and whose ``EFSBADCRC`` is ``EBADMSG`` (``xfs_linux.h``).
"""

import errno
import os
import re
import signal

from trove_ceph import exceptions
from trove_ceph.verification import report

#: What XFS answers that has read something which does not belong there.
CORRUPT_FILESYSTEM = frozenset({errno.EUCLEAN, errno.EBADMSG})

# The host, the disk below, the memory, or whoever sent a signal: with any of these in its log or
# in its answer, whatever else a server says may come from there.
_FAULT_OF_THE_HOST = re.compile(
    r'(?i:input/output error|i/o error|no space left|disk is full|disk full|table .* is full'
    r'|cannot allocate|out of memory|bad_alloc|read-only file system|too many open files'
    r'|transport endpoint is not connected|software caused connection abort|stale file handle'
    r'|no such device|semaphore wait|was only able to|retry attempts for|received shutdown)'
    # The number of the system's error: 2 is a file that is not there. InnoDB has numbers of its
    # own beside them, in which 71 is the same.
    r'|(?:[Oo]perating system error number|OS errno:?|errno:|[Ee]rror number) ?(?!(?:0|2)\b)\d+'
    r'|OS error:? ?(?!(?:0|2|71)\b)\d+'
    r'|\b(?:EIO|ENOSPC|EDQUOT|ENOMEM|EROFS|ENOTCONN|ECONNABORTED|ESHUTDOWN|EMFILE|ENFILE)\b'
)
#: Of the server or its settings: neither the data nor the host.
_NOT_FOR_THIS_SERVER = re.compile(
    r'Invalid MySQL server (upgrade|downgrade)|(?i:unknown) (variable|option)|'
    r'Different lower_case_table_names|[Kk]eyring|[Tt]able upgrade required|'
    # "... and it appears corrupted", which it is not for the server that wrote it.
    r'(?i:upgrade (after a crash )?is not supported)|'
    r'(?i:(unknown|unsupported) redo log format)|Redo log format v\d+ not supported'
)
_CORRUPT = re.compile(
    r'(?i:corrupt|checksum|marked as crashed|incorrect key file|contains bad data'
    r'|log sequence number .* is in the future|does not match the (data )?dictionary)'
)
_MISSING = re.compile(
    r'(?:OS errno:?|[Oo]perating system error number|[Ee]rror number|errno:) ?2\b'
    r'|[Nn]o such file or directory'
    r'|(?i:missing (redo|undo|log|mlog|tablespace)|(redo log|undo|tablespace|data ?file|binlog|'
    r"ibdata)[^.;]{0,80} (is missing|not found|does not exist)|file '[^']*' not found"
    r"|doesn't exist in engine|tablespace is missing)"
)
#: Errors of a statement that say of a table what is wrong with it (messages_to_clients.txt).
_CORRUPT_CODES = frozenset({1034, 1194, 1195, 1712, 1877})
_MISSING_CODES = frozenset({1812, 1932})
#: A server that fails by itself aborts, or ends with a code of its own; others are sent from
#: outside, such as by the kernel where memory or time is used up, or where a disk fails (SIGBUS).
_OWN_SIGNALS = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGILL, signal.SIGFPE})
# How a shell, or the first process of a namespace, reports a signal.
_SHELL_SIGNAL = 128


def of_server(what: str, told: str, log: str, exit_code: int | None) -> Exception:
    """Return what it comes to that a server ended, or did not get ready.

    :param told: its first errors
    :param log: all of its messages
    :param exit_code: a signal's number below zero; None: it still runs
    :returns: a Finding where the server says that the data is damaged or not there, otherwise the
        error that the inspection ends with
    """
    text = f'{what}: mysqld ended with {exit_code}: {told}'
    if fault := fault_of_the_host(log):
        return exceptions.InspectionFaultError(f'{text}; its log has "{fault}"')
    if _NOT_FOR_THIS_SERVER.search(told):
        return exceptions.NotInspectableError(text)
    if exit_code is None or _was_sent_a_signal(exit_code):
        return exceptions.InspectionFaultError(text)
    if _MISSING.search(told):
        return report.Finding(report.INCOMPLETE, text)
    if _CORRUPT.search(told):
        return report.Finding(report.CORRUPT, text)
    return exceptions.ServerFailedError(text)


def of_statement(what: str, told: str, code: int | None = None) -> Exception:
    """Return what it comes to that a server which goes on answers with an error.

    :param told: the error, without what may be data
    :param code: MySQL's number of the error; None where the text is all there is
    :returns: as :func:`of_server`
    """
    text = f'{what}: {told}'
    if _NOT_FOR_THIS_SERVER.search(told):
        return exceptions.NotInspectableError(text)
    if fault_of_the_host(told):
        return exceptions.InspectionFaultError(text)
    if code in _MISSING_CODES or (code is None and _MISSING.search(told)):
        return report.Finding(report.INCOMPLETE, text)
    if code in _CORRUPT_CODES or (code is None and _CORRUPT.search(told)):
        return report.Finding(report.CORRUPT, text)
    return exceptions.ServerFailedError(f'{text} (error {code})' if code else text)


def of_file(name: str, error: OSError) -> Exception:
    """Return what it comes to that a file of a data directory cannot be read.

    :returns: as :func:`of_server`
    """
    if error.errno == errno.ENOENT:
        return report.Finding(report.INCOMPLETE, f'{name} is not there')
    # A link, or a file in the place of a directory: nothing is followed.
    if error.errno in CORRUPT_FILESYSTEM | {errno.ELOOP, errno.ENOTDIR, errno.EISDIR}:
        return report.Finding(report.CORRUPT, f'{name} cannot be read: {error.strerror}')
    return exceptions.InspectionFaultError(f'{name} cannot be read: {error.strerror}')


def of_mount(told: str) -> Exception:
    """Return what it comes to that XFS is not mounted.

    :param told: what mount(8) says
    :returns: as :func:`of_server`
    """
    text = f'XFS cannot be mounted: {told}'
    if any(os.strerror(number) in told for number in CORRUPT_FILESYSTEM):
        return report.Finding(report.CORRUPT, text)
    return exceptions.InspectionFaultError(text)


def fault_of_the_host(log: str) -> str | None:
    """Return what a log says of a disk, memory or signal that failed; None where there is nothing.

    :param log: messages of a server without what may be data
    """
    found = _FAULT_OF_THE_HOST.search(log)
    return found[0].strip() if found else None


def _was_sent_a_signal(exit_code: int) -> bool:
    number = -exit_code if exit_code < 0 else exit_code - _SHELL_SIGNAL
    return number > 0 and number not in _OWN_SIGNALS
