# SPDX-License-Identifier: Apache-2.0
"""What tenants are told of why something failed: nothing of where it lies, or of how full that is.

What they can do something about they are told as it is. All else is in the operator's log.
"""

from trove_ceph import exceptions

#: By class, the more specific ones first.
_PLAIN: list[tuple[type[Exception], str]] = [
    (exceptions.NoSpaceError, 'there is no room for it at present'),
    (exceptions.BusyError, 'it is in use by something else at present'),
    (exceptions.NotFoundError, 'something that it needs is not there any more'),
    (exceptions.CanceledError, 'it was canceled'),
    (exceptions.CephUnreachableError, 'the storage did not answer'),
    (exceptions.NotInspectableError, 'there is no server that can open it'),
    (exceptions.StorageError, 'the storage failed'),
    (exceptions.NotAdoptableError, 'its volume is of a kind that cannot be backed up like this'),
    (exceptions.InvalidTiersError, 'the storage is not set up for it'),
    (exceptions.TroveCephError, ''),
    (Exception, 'it failed in a way that nobody thought of'),
]
_LOGGED = 'the log of trove-taskmanager has the details'


def plain(error: Exception) -> str:
    """Return why something failed, as tenants see it."""
    text = next(text for kind, text in _PLAIN if isinstance(error, kind))
    return f'{text}; {_LOGGED}' if text else _text(error)


def full(error: Exception) -> str:
    """Return why something failed and what came of it, as operators see it in the log."""
    return '; '.join([_text(error), *getattr(error, '__notes__', ())])


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
