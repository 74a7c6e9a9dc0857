# SPDX-License-Identifier: Apache-2.0
"""Where the facts of the checks come from; each is read at its first use, and once."""

import contextlib
import dataclasses
import datetime
import functools
import importlib.metadata
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from trove_ceph import exceptions
from trove_ceph.doctor import bus, cluster, measurement, settings
from trove_ceph.doctor.clone_facts import ClonedVolume
from trove_ceph.doctor.cloud_facts import AgentImage, ServiceFacts
from trove_ceph.doctor.golden_facts import ConfiguredVolume, HotGuests
from trove_ceph.doctor.record_facts import Records, SchemaFacts
from trove_ceph.tiers import ceph, resources, systems, tier_types, tiers_file, trove

if TYPE_CHECKING:
    from trove_ceph.doctor import cloud

T = TypeVar('T')


@dataclasses.dataclass(frozen=True)
class Targets:
    """The cloud to examine.

    :param tiers_file: path of the tiers file
    :param ceph: the cluster
    :param measurements: path of the file with the measured IOPS of pools
    :param config_files: the configuration files of each service
    :param trove_manage: name or path of ``trove-manage``
    :param find_orphans: returns the kinds of the orphans, one for each orphan
    """

    tiers_file: str
    ceph: ceph.Ceph
    measurements: str
    config_files: Mapping[settings.Service, Sequence[str]]
    trove_manage: str
    find_orphans: Callable[[], Sequence[str]]


def _once(read: Callable[['Sources'], T]) -> Callable[['Sources'], T]:
    """Keep what a method returns or raises: a system that hangs is waited for once."""
    name = read.__name__

    @functools.wraps(read)
    def answer(self: 'Sources') -> T:
        if name not in self.answers:
            try:
                self.answers[name] = read(self), None
            except Exception as error:
                self.answers[name] = None, error
        value, failure = self.answers[name]
        if failure is not None:
            raise failure
        return value

    return answer


class Sources:
    """The facts of one run.

    Each method raises a TroveCephError when its system refuses or does not answer.
    """

    def __init__(self, targets: Targets):
        self._targets = targets
        self.answers: dict[str, tuple[Any, Exception | None]] = {}

    @_once
    def tiers(self) -> tier_types.TiersFile:
        """Return the content of the tiers file."""
        return tiers_file.load(self._targets.tiers_file)

    @_once
    def fsid(self) -> str:
        """Return the id of the cluster; the other facts of Ceph ask for it first."""
        return self._targets.ceph.fsid()

    @_once
    def ceph(self) -> resources.CephState:
        """Return the state of Ceph as tiers see it."""
        self.fsid()
        found = systems.Systems(self.tiers(), ceph=self._targets.ceph).observe().ceph
        assert found
        return found

    @_once
    def cluster(self) -> cluster.ClusterFacts:
        """Return the state of the cluster as an operator of Ceph sees it."""
        self.fsid()
        return cluster.read(self._targets.ceph)

    @_once
    def blocklist_expiries(self) -> Mapping[str, float]:
        """Return for how many seconds each monitor blocklists clients by default."""
        self.fsid()
        return cluster.read_blocklist_expiries(self._targets.ceph)

    @_once
    def measurements(self) -> Mapping[str, measurement.Measurement]:
        """Return the measured IOPS by pool."""
        return measurement.load(self._targets.measurements)

    @_once
    def cloud(self) -> 'cloud.Cloud':
        """Return the services of OpenStack, as the user of Trove."""
        with _trove():
            from trove_ceph.doctor import cloud

            return cloud.Cloud(self._conf())

    @_once
    def cinder(self) -> resources.CinderState:
        """Return the state of Cinder as tiers see it."""
        return self.cloud().cinder().observe()

    @_once
    def services(self) -> Sequence[ServiceFacts]:
        """Return the services of Cinder and Nova with their heartbeats."""
        return self.cloud().services()

    @_once
    def agent_images(self) -> Sequence[AgentImage]:
        """Return the images of Glance that have our guest agent."""
        return self.cloud().agent_images()

    @_once
    def associations(self) -> resources.TroveState:
        """Return the volume types of the datastore versions that the tiers file names."""
        conf = next(iter(self._targets.config_files[settings.Service.TROVE]), '')
        adapter = trove.Trove(self._targets.trove_manage, conf)
        found = systems.Systems(self.tiers(), trove=adapter).observe().trove
        assert found
        return found

    @_once
    def settings(self) -> settings.Settings:
        """Return the values of the options that the operations rely on."""
        return settings.read(self._targets.config_files)

    @_once
    def bus(self) -> bus.BusFacts:
        """Return how far guests are from the bus of the storage service."""
        return bus.read(self._targets.config_files[settings.Service.TROVE])

    @_once
    def missing_extensions(self) -> Sequence[str]:
        """Return the names of our extensions that Trove's API has not loaded."""
        return self.cloud().missing_extensions()

    @_once
    def trove_version(self) -> str:
        """Return the version of Trove that is installed here."""
        try:
            return importlib.metadata.version('trove')
        except importlib.metadata.PackageNotFoundError as error:
            raise exceptions.ServiceUnavailableError(
                'Trove is not installed here: run this where trove-taskmanager runs'
            ) from error

    @_once
    def records(self) -> Records:
        """Return the rows of Trove's database, Trove's own and ours."""
        with _trove():
            from trove_ceph.doctor import records

            return records.read(self._conf())

    @_once
    def golden_volumes(self) -> Sequence[ConfiguredVolume]:
        """Return the golden volumes that new instances would use, with their states."""
        with _trove():
            conf = self._conf()
            content = self.tiers()
            from trove_ceph.doctor import golden_volumes

            return golden_volumes.read(conf, content)

    @_once
    def hot_guests(self) -> HotGuests | None:
        """Return the hot guests of the configuration with their golden volumes; None: none."""
        with _trove():
            conf = self._conf()
            from trove_ceph.doctor import golden_volumes

            return golden_volumes.read_hot(conf, self.tiers)

    @_once
    def cloned_volumes(self) -> Sequence[ClonedVolume]:
        """Return the volumes of instances, except replicas, that read from other images."""
        with _trove():
            conf = self._conf()
            from trove_ceph.doctor import cloned_volumes

            return cloned_volumes.read(conf)

    @_once
    def schema(self) -> SchemaFacts:
        """Return the version of our tables."""
        with _trove():
            from trove_ceph.doctor import records

            self._conf()
            return records.read_schema()

    @_once
    def now(self) -> datetime.datetime:
        """Return the time of this host, in UTC without a time zone."""
        return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)

    @_once
    def orphans(self) -> Sequence[str]:
        """Return the kinds of the orphans, one for each orphan."""
        with _trove():
            return self._targets.find_orphans()

    @_once
    def _conf(self) -> Any:
        """Return the configuration of trove-taskmanager; it connects Trove's models as well."""
        from trove_ceph.trove_adapter import configuration

        files = self._targets.config_files[settings.Service.TROVE]
        return configuration.load('trove-ceph-manage', files)


@contextlib.contextmanager
def _trove() -> Iterator[None]:
    """Translate the errors of Trove's modules and of its database."""
    # Trove loads eventlet where that is installed, which warns that it is deprecated.
    warnings.filterwarnings('ignore', message=r'\s*Eventlet is deprecated')
    try:
        import oslo_db.exception
        import sqlalchemy.exc
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    try:
        yield
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    except (oslo_db.exception.DBError, sqlalchemy.exc.SQLAlchemyError) as error:
        raise exceptions.ServiceUnavailableError(f'the database failed: {error}') from error


def _missing(error: ModuleNotFoundError) -> exceptions.TroveCephError:
    return exceptions.ServiceUnavailableError(
        f'the Python package {error.name} is missing: run this where trove-taskmanager runs'
    )
