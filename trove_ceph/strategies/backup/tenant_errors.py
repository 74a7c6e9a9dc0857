# SPDX-License-Identifier: Apache-2.0
"""What tenants are told of why something failed: nothing of where it lies, or of how full that is.

What they can do something about they are told as it is. All else is in the operator's log.
"""

import contextlib
from collections.abc import Iterator

from oslo_log import log as logging

from trove_ceph import exceptions

LOG = logging.getLogger(__name__)

#: Those of which tenants are told as they are.
TOLD = (
    exceptions.FlavorTooSmallError,
    exceptions.GuestUnavailableError,
    exceptions.InvalidBackupError,
    exceptions.NotQuiescedError,
    exceptions.UnsafeSettingsError,
    exceptions.VaultQuotaExceededError,
    exceptions.VolumeTooSmallError,
)

#: By class, the more specific ones first.
_PLAIN: list[tuple[type[Exception], str]] = [
    (exceptions.NoSpaceError, 'there is no room for it at present'),
    (exceptions.BusyError, 'it is in use by something else at present'),
    (exceptions.NotFoundError, 'something that it needs is not there any more'),
    (exceptions.RecordNotFoundError, 'something that it needs is not there any more'),
    (exceptions.ClaimLostError, 'another operation is working on it'),
    (exceptions.DatabaseError, 'its state does not allow it'),
    (exceptions.CanceledError, 'it was canceled'),
    (exceptions.CephUnreachableError, 'the storage did not answer'),
    (exceptions.NotInspectableError, 'there is no server that can open it'),
    (
        exceptions.InspectionFaultError,
        'a fault of the storage or of a host interrupted the inspection, which says nothing of '
        'the backup',
    ),
    (exceptions.StorageError, 'the storage failed'),
    (exceptions.NotAdoptableError, 'its volume is not fit for it, or not at present'),
    (exceptions.AdoptionFailedError, 'Cinder did not take it over'),
    (exceptions.QuotaExceededError, 'the quota of who holds all volumes does not allow it'),
    (exceptions.InvalidTiersError, 'the storage is not set up for it'),
    (exceptions.ServiceUnavailableError, 'a service that it needs did not answer'),
    (exceptions.ServerFailedError, 'no server could be started for it'),
    (Exception, 'an unexpected error occurred'),
]
_LOGGED = 'the log of trove-taskmanager has the details'


def plain_reason(error: Exception) -> str:
    """Return why something failed, as tenants see it."""
    if isinstance(error, TOLD):
        return _text(error)
    text = next(text for kind, text in _PLAIN if isinstance(error, kind))
    return f'{text}; {_LOGGED}'


@contextlib.contextmanager
def translated_errors(what: str) -> Iterator[None]:
    """Log an error of ours as operators see it, and raise it as tenants do.

    For what Trove shows tenants as it is raised, such as the fault of an instance. What Trove and
    its clients raise stays as it is.

    :raises TroveCephError: one was raised
    """
    try:
        yield
    except exceptions.TroveCephError as error:
        LOG.error('%s: %s', what, full(error), exc_info=not isinstance(error, TOLD))
        raise exceptions.TroveCephError(f'{what}: {plain_reason(error)}') from error


def full(error: Exception) -> str:
    """Return why something failed and what came of it, as operators see it in the log."""
    return '; '.join([_text(error), *getattr(error, '__notes__', ())])


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
