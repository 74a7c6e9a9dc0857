# SPDX-License-Identifier: Apache-2.0
"""The errors of this package, split by what a caller does about them."""


class TroveCephError(Exception):
    """The root of the hierarchy: catch this to handle any failure of this package.

    Trove stores the first 255 characters of a message as an instance's fault, so messages name the
    object first, then observed and expected values.

    :param message: for operators
    :param shown: for tenants, without servers, hosts and volumes; None: what the class stands for
    """

    def __init__(self, message: str = '', shown: str | None = None):
        super().__init__(message)
        self.shown = shown


class FlavorTooSmallError(TroveCephError):
    """The tenant must choose a larger flavor; retrying with the same one cannot succeed."""


class VolumeTooSmallError(TroveCephError):
    """The tenant must choose a larger volume; retrying with the same one cannot succeed."""


class VolumeNotReadyError(TroveCephError):
    """The data volume is missing or not yet as large as announced; a later retry may succeed."""


class VolumeHasDataError(TroveCephError):
    """The data volume has data that must not be overwritten; an operator must inspect it."""


class InterfaceNotReadyError(TroveCephError):
    """A network interface is missing or has not its addresses yet; a later retry may succeed."""


class GuestNotBoundError(TroveCephError):
    """A waiting guest cannot become an instance, and never will; its server is to be deleted."""


class StorageCommandError(TroveCephError):
    """A file system or block device command failed or timed out on the host."""


class NotQuiescedError(TroveCephError):
    """The server could not be quiesced for a backup and continues to run; a retry may succeed."""


class InvalidPlanError(TroveCephError):
    """The benchmark's plan or command line must be corrected; nothing is done."""


class TargetUnavailableError(TroveCephError):
    """The server cannot be measured: unreachable, access denied, gone, or not empty."""


class LoadFailedError(TroveCephError):
    """A load generator or an operation's command failed; the message has its last output."""


class ResultsFormatError(TroveCephError):
    """A results folder has another version, is foreign or damaged; it is not changed."""


class FlavorGivenUpError(TroveCephError):
    """No database serves with the flavor of a resize, so that the instance returned to its own."""


class ServerFailedError(TroveCephError):
    """A MySQL server that this package runs did not start; the message has the end of its log."""


class UnexpectedTransactionsError(TroveCephError):
    """The server of an inspection committed transactions of its own, so there is no verdict."""


class InvalidTransportError(TroveCephError):
    """The message bus of the storage service is misconfigured; nothing is started."""


class KeyFileError(TroveCephError):
    """The file of the message keys is missing, damaged or readable for others; nothing is sent."""


class InvalidTiersError(TroveCephError):
    """The tiers file must be corrected or does not fit the cluster; nothing is changed."""


class MissingTierError(InvalidTiersError):
    """No tier has the pool of an object; add a tier with this pool to the tiers file again."""


class InvalidHostsError(TroveCephError):
    """The file of hyper-converged hosts must be corrected; nothing is planned."""


class InvalidFleetError(TroveCephError):
    """The fleet file, the price table or an option must be corrected; nothing is written."""


class PlacementCheckError(TroveCephError):
    """CRUSH could not be asked for the placement: crushtool is missing or failed."""


class PictureError(TroveCephError):
    """A picture cannot be drawn or written, so that nothing is printed either."""


class OutputRefusedError(TroveCephError):
    """A file cannot be written, or one of another origin would be lost; nothing is changed."""


class ConsequencesNotAcceptedError(TroveCephError):
    """A change has consequences that the operator has not accepted; nothing is changed."""


class ServiceUnavailableError(TroveCephError):
    """An OpenStack service refused a request or did not answer; a later retry may succeed."""


class NotThisCopyError(ServiceUnavailableError):
    """This copy of the storage service must not do the work; retry, another copy may answer."""


class UnauthenticatedReplyError(ServiceUnavailableError):
    """The reply is not authenticated and is ignored; repeating the request is safe."""


class VersionMismatchError(ServiceUnavailableError):
    """Service and caller are of releases that do not fit; upgrade the one that the message names.

    Nothing was done, and the request can be repeated after the upgrade.
    """


class GuestUnavailableError(ServiceUnavailableError):
    """The guest agent of an instance refused a request, failed, or did not answer."""


class GuestSilentError(GuestUnavailableError):
    """The guest agent of an instance did not answer in time; its server may be gone."""


class NoServerError(ServiceUnavailableError):
    """Nova started no server of the requested flavor; a later request may succeed."""


class NoPortError(ServiceUnavailableError):
    """Neutron has no port for a server: the network has no free address, or the quota is used."""


class OperatorNeededError(ServiceUnavailableError):
    """An operation waits until an operator has repaired what its message names."""


class GuestOutdatedError(GuestUnavailableError):
    """The guest agent of an instance is of an earlier release; its server needs a newer image."""


class InProgressError(TroveCephError):
    """What was requested is still in progress; look again in some seconds."""


class ReplacementRefusedError(TroveCephError):
    """The server of an instance cannot be replaced now; nothing was changed."""


class ReplacementCanceledError(TroveCephError):
    """The instance is being deleted, so that its server or volume is not replaced any more."""


class ReprovisioningRefusedError(TroveCephError):
    """A replica cannot be re-provisioned now; nothing was changed."""


class ReplicaRefusedError(TroveCephError):
    """A replica cannot be created as requested, or not from this source; nothing was changed."""


class SourceNotChangedError(TroveCephError):
    """A replica cannot be promoted, or a source be ejected, now; the source is the same."""


class DeletionRefusedError(TroveCephError):
    """An instance is not deleted, since others would lose their source; nothing was changed."""


class ReplicasLeftError(TroveCephError):
    """The source has changed, but instances, which the message names, do not follow it."""


class NewSourceSilentError(ReplicasLeftError):
    """The source has changed, but the agent of the new one does not answer: none may write."""


class OperationUnfinishedError(TroveCephError):
    """An operation could not end now; a taskmanager continues it by itself."""


class PortGoneError(TroveCephError):
    """A port of an instance was deleted; its addresses cannot be kept."""


class ChangeNotSeenError(TroveCephError):
    """A change reported no error but had no observable effect; running it again is safe."""


class QuotaExceededError(TroveCephError):
    """A project's quota, which the message names, is used up; retry after it is raised."""


class VaultQuotaExceededError(QuotaExceededError):
    """A project's copies would exceed its quota of the vault; delete some or raise the quota."""


class UnsafeSettingsError(TroveCephError):
    """A snapshot would not be consistent with the server's settings; change the settings first."""


class InvalidBackupError(TroveCephError):
    """The request for the backup must be corrected, such as its parent; nothing is done."""


class NotAdoptableError(TroveCephError):
    """Cinder could not manage the snapshot or image, or would harm it; nothing is changed."""


class AdoptionFailedError(TroveCephError):
    """Cinder accepted a snapshot or image and failed; an operator must inspect its logs."""


class RecordError(TroveCephError):
    """A record in Trove's database does not allow the request; a retry does not help."""


class RecordNotFoundError(RecordError):
    """The record does not exist or is deleted."""


class RecordExistsError(RecordError):
    """Another record has the same unique value; it is not changed."""


class InvalidTransitionError(RecordError):
    """The state of a backup does not allow the transition; nothing is written."""


class ClaimLostError(RecordError):
    """Another worker has the claim on a backup; this worker must not change it any more."""


class InvalidConfigurationError(TroveCephError):
    """A configuration file must be corrected; nothing is done."""


class GuestsNotAllowedError(InvalidConfigurationError):
    """The configuration of Trove refuses warm guests to all instances."""


class UnsupportedTroveError(TroveCephError):
    """The installed Trove does not fit this release; the service is not started."""


class UntrustedMessageError(TroveCephError):
    """A message on Trove's bus is forged, or under another key; it has no effect."""


class StorageError(TroveCephError):
    """Ceph refused a request; an operator must correct the cause, such as missing caps."""


class NotFoundError(StorageError):
    """The pool, image or snapshot does not exist."""


class AlreadyExistsError(StorageError):
    """The name is already in use; the existing object is not changed."""


class BusyError(StorageError):
    """Children, snapshots or clients, which the message names, prevent the operation."""


class SilentOwnerError(BusyError):
    """A client that holds the lock of an image does not answer; the operation would cut it off."""


class NoSpaceError(StorageError):
    """A pool is full; the message has its usage. The operation does not wait for space."""


class NotFencedError(StorageError):
    """No proof that clients cannot write to the image any more: do not attach it elsewhere."""


class CorruptCopyError(StorageError):
    """A copy differs from its source; it is discarded and the next attempt starts from scratch."""


class NotInspectableError(StorageError):
    """No configured server can open the backup; an operator must configure one that can."""


class InspectionFaultError(StorageError):
    """A host, a disk or Ceph failed during an inspection; it has no verdict, so run it again."""


class CephUnreachableError(StorageError):
    """Ceph did not answer in time or blocklisted this client; repeat the request later."""


class CanceledError(StorageError):
    """The operation was canceled; the same request continues where it stopped."""


class InvalidRequestError(StorageError):
    """The request itself must be corrected, such as its pool or its name; nothing is done."""


class NotPermittedError(StorageError):
    """The verb is not permitted on a foreign image or snapshot; nothing is done."""


class LockLostError(StorageError):
    """Another process may hold the lock by now, so the operation was aborted."""


class StillRunningError(StorageError):
    """The caller's time limit passed while the job continues; waiting again is safe."""


def error_class(name: str) -> type[TroveCephError]:
    """Return the error class of a name from another process; StorageError if it is unknown."""
    found = globals().get(name)
    if isinstance(found, type) and issubclass(found, TroveCephError):
        return found
    return StorageError
