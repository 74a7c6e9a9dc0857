# SPDX-License-Identifier: Apache-2.0
"""The errors that tenants see: they reveal neither where data is stored nor how full it is.

A tenant sees unchanged the errors that a tenant can correct. The operator's log has all others.
"""

import contextlib
from collections.abc import Iterator

from oslo_log import log as logging

from trove_ceph import exceptions

LOG = logging.getLogger(__name__)

#: Errors whose message tenants see unchanged.
SHOWN_UNCHANGED = (
    exceptions.FlavorTooSmallError,
    exceptions.GuestUnavailableError,
    exceptions.InvalidBackupError,
    exceptions.NotQuiescedError,
    exceptions.ReplicasLeftError,
    exceptions.ReplicaRefusedError,
    exceptions.SourceNotChangedError,
    exceptions.UnsafeSettingsError,
    exceptions.VaultQuotaExceededError,
    exceptions.VolumeTooSmallError,
)

#: The message for each class of error, the more specific classes first.
_MESSAGES: list[tuple[type[Exception], str]] = [
    (exceptions.NoSpaceError, 'the storage has no room for it at present'),
    (exceptions.SilentOwnerError, 'the server of the database does not answer at present'),
    (exceptions.BusyError, 'another operation uses it at present'),
    (exceptions.InProgressError, 'another operation uses it at present'),
    (
        exceptions.OperationUnfinishedError,
        'a service that it needs does not answer; it goes on by itself',
    ),
    (exceptions.NotFoundError, 'a volume or snapshot that it needs no longer exists'),
    (exceptions.RecordNotFoundError, 'a backup or an instance that it needs no longer exists'),
    (exceptions.ClaimLostError, 'another operation uses it at present'),
    (exceptions.RecordError, 'its state does not allow it'),
    (exceptions.CanceledError, 'it was canceled'),
    (exceptions.CephUnreachableError, 'the storage did not answer'),
    (exceptions.NotInspectableError, 'no MySQL server is configured that can open it'),
    (
        exceptions.InspectionFaultError,
        'a fault of the storage or of a host interrupted the inspection; this proves nothing about '
        'the backup',
    ),
    (exceptions.StorageError, 'the storage failed'),
    (exceptions.NotAdoptableError, 'its volume cannot be used for it at present'),
    (exceptions.AdoptionFailedError, 'the block storage service could not register it'),
    (exceptions.QuotaExceededError, "the database service's own quota of volumes is used up"),
    (exceptions.MissingTierError, 'the storage of the backup is not set up any more'),
    (exceptions.InvalidTiersError, 'the storage is not set up for it'),
    (exceptions.NoPortError, 'the network of the database service has no room for its server'),
    (exceptions.OperatorNeededError, 'your operator has to repair something first'),
    (exceptions.ServiceUnavailableError, 'a service that it needs did not answer'),
    (
        exceptions.UnexpectedTransactionsError,
        'the MySQL server of the inspection committed transactions of its own; this proves nothing '
        'about the backup',
    ),
    (exceptions.ServerFailedError, 'the MySQL server of the inspection failed'),
    (Exception, 'an unexpected error occurred'),
]
_SEE_LOG = 'your operator finds the details in the log of trove-taskmanager'


def tenant_message(error: Exception) -> str:
    """Return the message that tenants see for an error."""
    if isinstance(error, exceptions.TroveCephError) and error.shown:
        return error.shown
    if isinstance(error, SHOWN_UNCHANGED):
        return _text(error)
    text = next(text for kind, text in _MESSAGES if isinstance(error, kind))
    return f'{text}; {_SEE_LOG}'


@contextlib.contextmanager
def translated_errors(subject: str) -> Iterator[None]:
    """Log an error of this package in full, and raise it with the message for tenants.

    Use it where Trove shows tenants what is raised, such as the fault of an instance. Errors of
    Trove and its clients pass unchanged.

    :param subject: what the message begins with
    :raises TroveCephError: the block raised one
    """
    try:
        yield
    except exceptions.TroveCephError as error:
        is_unexpected = not isinstance(error, SHOWN_UNCHANGED)
        LOG.error('%s: %s', subject, operator_message(error), exc_info=is_unexpected)
        text = tenant_message(error)
        if not text.startswith((f'{subject}: ', f'{subject} ')):
            text = f'{subject}: {text}'
        raise exceptions.TroveCephError(text) from error


def operator_message(error: Exception) -> str:
    """Return an error with its notes, as operators see it in the log."""
    return '; '.join([_text(error), *getattr(error, '__notes__', ())])


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
