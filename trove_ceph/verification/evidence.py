# SPDX-License-Identifier: Apache-2.0
"""Distinguish damage of a backup from faults of the system that inspects it.

Only positive evidence shows that a backup is damaged: a statement about the *data*, such as a
checksum mismatch in a page, from a program that could read them. Every other failure, known or
unknown, is a fault of the host, of Ceph or of the server; it ends the inspection with an error, and
the inspection is retried. So the lists below are complete: other messages are not evidence.

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

#: Errors of XFS for metadata that it could read and found damaged.
CORRUPT_FILESYSTEM = frozenset({errno.EUCLEAN, errno.EBADMSG})

# Faults of the host, its disk or its memory, and signals from outside. With one of these in the log
# or in an answer, everything else that the server reports may be a consequence.
_FAULT_OF_THE_HOST = re.compile(
    r'(?i:input/output error|i/o error|no space left|disk is full|disk full|table .* is full'
    r'|cannot allocate|out of memory|bad_alloc|read-only file system|too many open files'
    r'|transport endpoint is not connected|software caused connection abort|stale file handle'
    r'|no such device|semaphore wait|was only able to|retry attempts for|received shutdown)'
    # The errno: 2 is a missing file. InnoDB also has its own numbers, in which 71 is a missing
    # file.
    r'|(?:[Oo]perating system error number|OS errno:?|errno:|[Ee]rror number) ?(?!(?:0|2)\b)\d+'
    r'|OS error:? ?(?!(?:0|2|71)\b)\d+'
    r'|\b(?:EIO|ENOSPC|EDQUOT|ENOMEM|EROFS|ENOTCONN|ECONNABORTED|ESHUTDOWN|EMFILE|ENFILE)\b'
)
#: Faults of the server or its settings, neither of the data nor of the host.
_NOT_FOR_THIS_SERVER = re.compile(
    r'Invalid MySQL server (upgrade|downgrade)|(?i:unknown) (variable|option)|'
    r'Different lower_case_table_names|[Kk]eyring|[Tt]able upgrade required|'
    # The message goes on "and it appears corrupted", but the server that wrote the log can read it.
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
#: Errors of a statement that report damage of a table (messages_to_clients.txt).
_CORRUPT_CODES = frozenset({1034, 1194, 1195, 1712, 1877})
_MISSING_CODES = frozenset({1812, 1932})
#: Signals of a server that fails by itself. Other signals come from outside, such as from the
#: kernel when memory or CPU time is exhausted or a disk fails (SIGBUS).
_OWN_SIGNALS = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGILL, signal.SIGFPE})
# How a shell, or the first process of a namespace, reports a signal.
_SHELL_SIGNAL = 128


def of_server(what: str, message: str, log: str, exit_code: int | None) -> Exception:
    """Classify the end of a server, or its failure to become ready.

    :param what: what the server did, for the message
    :param message: its first errors
    :param log: all of its messages
    :param exit_code: the negative number of a signal, or an exit code; None while it still runs
    :returns: a NotSoundError if the server reports that data is damaged or missing, otherwise the
        error to end the inspection with
    """
    text = f'{what}: mysqld ended with {exit_code}: {message}'
    if fault := fault_of_the_host(log):
        return exceptions.InspectionFaultError(f'{text}; its log has "{fault}"')
    if _NOT_FOR_THIS_SERVER.search(message):
        return exceptions.NotInspectableError(text)
    if exit_code is None or _was_sent_a_signal(exit_code):
        return exceptions.InspectionFaultError(text)
    if _MISSING.search(message):
        return report.NotSoundError(report.INCOMPLETE, text)
    if _CORRUPT.search(message):
        return report.NotSoundError(report.CORRUPT, text)
    return exceptions.ServerFailedError(text)


def of_statement(what: str, message: str, code: int | None = None) -> Exception:
    """Classify an error of a statement, from a server that still runs.

    :param what: what the statement did, for the message
    :param message: the error, without possible tenant data
    :param code: MySQL's error number; None if there is only the text
    :returns: as :func:`of_server`
    """
    text = f'{what}: {message}'
    if _NOT_FOR_THIS_SERVER.search(message):
        return exceptions.NotInspectableError(text)
    if fault_of_the_host(message):
        return exceptions.InspectionFaultError(text)
    if code in _MISSING_CODES or (code is None and _MISSING.search(message)):
        return report.NotSoundError(report.INCOMPLETE, text)
    if code in _CORRUPT_CODES or (code is None and _CORRUPT.search(message)):
        return report.NotSoundError(report.CORRUPT, text)
    return exceptions.ServerFailedError(f'{text} (error {code})' if code else text)


def of_file(name: str, error: OSError) -> Exception:
    """Classify the failure to read a file of a data directory.

    :returns: as :func:`of_server`
    """
    if error.errno == errno.ENOENT:
        return report.NotSoundError(report.INCOMPLETE, f'{name} is not there')
    # A link, or a file in place of a directory: links are not followed.
    if error.errno in CORRUPT_FILESYSTEM | {errno.ELOOP, errno.ENOTDIR, errno.EISDIR}:
        return report.NotSoundError(report.CORRUPT, f'{name} cannot be read: {error.strerror}')
    return exceptions.InspectionFaultError(f'{name} cannot be read: {error.strerror}')


def of_mount(message: str) -> Exception:
    """Classify the failure to mount XFS.

    :param message: the error of mount(8)
    :returns: as :func:`of_server`
    """
    text = f'XFS cannot be mounted: {message}'
    if any(os.strerror(number) in message for number in CORRUPT_FILESYSTEM):
        return report.NotSoundError(report.CORRUPT, text)
    return exceptions.InspectionFaultError(text)


def fault_of_the_host(log: str) -> str | None:
    """Return the first fault of the host that a log reports, or None.

    :param log: messages of a server, without possible tenant data
    """
    found = _FAULT_OF_THE_HOST.search(log)
    return found[0].strip() if found else None


def _was_sent_a_signal(exit_code: int) -> bool:
    number = -exit_code if exit_code < 0 else exit_code - _SHELL_SIGNAL
    return number > 0 and number not in _OWN_SIGNALS
