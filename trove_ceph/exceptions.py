# SPDX-License-Identifier: Apache-2.0
"""Every error this package raises on purpose, split by what a caller does about it."""


class TroveCephError(Exception):
    """The root: catch this to handle any failure of this package.

    The first 255 characters of the message are what Trove stores as an instance's fault, so
    messages name the object first and state observed against expected values.
    """


class FlavorTooSmallError(TroveCephError):
    """The tenant must choose a larger flavor; retrying with the same one cannot succeed."""


class VolumeTooSmallError(TroveCephError):
    """The tenant must choose a larger volume; retrying with the same one cannot succeed."""


class VolumeNotReadyError(TroveCephError):
    """The data volume is not there, or not yet as large as announced; a later retry may succeed."""


class VolumeHasDataError(TroveCephError):
    """The data volume holds something that must not be overwritten; an operator has to look."""


class StorageCommandError(TroveCephError):
    """A file system or block device command failed or timed out on the host."""


class NotQuiescedError(TroveCephError):
    """The database could not be brought to rest for a backup and runs on; a retry may succeed."""


class InvalidPlanError(TroveCephError):
    """The benchmark's plan or command line must be corrected; nothing was done."""


class TargetUnavailableError(TroveCephError):
    """The server cannot be measured: not reachable, access denied, gone, or not empty."""


class LoadFailedError(TroveCephError):
    """A load generator or an operation's command failed; the message carries its last lines."""


class ResultsFormatError(TroveCephError):
    """A results folder is of another version, foreign or damaged; it is left as it is."""


class ServerFailedError(TroveCephError):
    """A MySQL server of our own did not start; the message carries the end of its log."""


class InvalidTransportError(TroveCephError):
    """The message bus of the storage service must be configured otherwise; nothing was started."""


class KeyFileError(TroveCephError):
    """The file with the keys of messages is missing, damaged or open to others; nobody is asked."""


class InvalidTiersError(TroveCephError):
    """The tiers file must be corrected, or does not fit the cluster; nothing was done."""


class ConsequencesNotAcceptedError(TroveCephError):
    """A change has consequences that nobody has agreed to; nothing was done."""


class ServiceUnavailableError(TroveCephError):
    """An OpenStack service refused a request or did not answer; a later retry may succeed."""


class NotThisCopyError(ServiceUnavailableError):
    """This copy of the storage service must not do the work; ask again, another one may answer."""


class UnauthenticatedReplyError(ServiceUnavailableError):
    """The reply cannot be proved to be the service's, so it says nothing; asking again is safe."""


class GuestUnavailableError(ServiceUnavailableError):
    """The guest agent of an instance refused a request, failed at it, or did not answer."""


class ChangeNotSeenError(TroveCephError):
    """A change was made without an error, and cannot be seen; running it again is safe."""


class QuotaExceededError(TroveCephError):
    """A project's quota is used up, which the message names; retrying helps after it was raised."""


class VaultQuotaExceededError(QuotaExceededError):
    """A project's copies would exceed its quota of the vault; delete some, or raise the quota."""


class UnsafeSettingsError(TroveCephError):
    """A snapshot would not hold what the server promised; its settings must be changed first."""


class InvalidBackupError(TroveCephError):
    """The backup must be asked for otherwise, such as with another parent; nothing was done."""


class NotAdoptableError(TroveCephError):
    """Cinder could not take it over, or not without harm, as it is; nothing was changed."""


class AdoptionFailedError(TroveCephError):
    """Cinder failed at what it had agreed to take over; an operator has to look at its logs."""


class DatabaseError(TroveCephError):
    """A record in Trove's database does not allow the request; asking again does not help."""


class RecordNotFoundError(DatabaseError):
    """The record does not exist, or was deleted."""


class RecordExistsError(DatabaseError):
    """Another record has what must be unique; it was left as it is."""


class InvalidTransitionError(DatabaseError):
    """A backup cannot go from its state to the one that was to be written; nothing was written."""


class ClaimLostError(DatabaseError):
    """Another worker carries on with a backup, or deletes it; this one must leave it alone."""


class InvalidConfigurationError(TroveCephError):
    """A configuration file must be corrected; nothing was done."""


class StorageError(TroveCephError):
    """Ceph refused a request, for a reason that an operator must look at, such as missing caps."""


class NotFoundError(StorageError):
    """The pool, image or snapshot is not there."""


class AlreadyExistsError(StorageError):
    """Something else has the name that was to be made; it was left as it is."""


class BusyError(StorageError):
    """Children, snapshots or clients stand in the way, which the message names."""


class NoSpaceError(StorageError):
    """A pool is full; the message carries its fill. Nothing waits for it to be emptied."""


class NotFencedError(StorageError):
    """It could not be proved that no client can write to the image any more: do not attach it."""


class CorruptCopyError(StorageError):
    """A copy is not what its source is; it does not count and the next attempt starts anew."""


class NotInspectableError(StorageError):
    """No server here can open the backup; an operator must configure one that can."""


class InspectionFaultError(StorageError):
    """A host, a disk or Ceph failed an inspection: it says nothing of the backup; run it again."""


class CephUnreachableError(StorageError):
    """Ceph did not answer in time, or cut us off; the same request may be made again later."""


class CanceledError(StorageError):
    """The operation was asked to stop; the same request carries on where it ended."""


class InvalidRequestError(StorageError):
    """The request itself must be corrected, such as its pool or its name; nothing was done."""


class NotPermittedError(StorageError):
    """The verb may not be used on an image or snapshot that is not ours; nothing was done."""


class LockLostError(StorageError):
    """What was worked on may have been taken by somebody else, so the work was broken off."""


class StillRunningError(StorageError):
    """The caller's time is up, and the work goes on; waiting for it again is safe."""


def error_class(name: str) -> type[TroveCephError]:
    """Return the class that another process names; StorageError for one that is unknown here."""
    found = globals().get(name)
    if isinstance(found, type) and issubclass(found, TroveCephError):
        return found
    return StorageError
