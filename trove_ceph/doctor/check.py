# SPDX-License-Identifier: Apache-2.0
"""A check, and how checks are run."""

import dataclasses
import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.doctor import remedies
from trove_ceph.doctor.finding import Finding, Level
from trove_ceph.doctor.sources import Sources

LOG = logging.getLogger(__name__)


class System(enum.StrEnum):
    """The system that a check examines."""

    CEPH = 'Ceph'
    OPENSTACK = 'OpenStack'
    TROVE = 'Trove'
    BACKUPS = 'backups'

    @property
    def remedy(self) -> str:
        """The command that shows why the system does not answer."""
        return {
            System.CEPH: remedies.CEPH_STATUS,
            System.OPENSTACK: remedies.VOLUME_SERVICES,
            System.TROVE: remedies.DB_VERSION,
            System.BACKUPS: remedies.DB_VERSION,
        }[self]


@dataclasses.dataclass(frozen=True)
class Check:
    """A check.

    :param promise: what holds if it finds nothing, a clause for people
    :param gather: reads the facts
    :param evaluate: judges them, a pure function; it yields nothing if all is well
    """

    name: str
    system: System
    promise: str
    gather: Callable[[Sources], Any]
    evaluate: Callable[[Any], Iterable[Finding]]

    def run(self, sources: Sources) -> list[Finding]:
        """Return the findings, at least one.

        A system that does not answer gives a finding, so that it hides no other check.
        """
        try:
            found = list(self.evaluate(self.gather(sources)))
        except exceptions.TroveCephError as error:
            found = [self._unknown(str(error))]
        except Exception as error:
            # An answer in a form that nobody foresaw must not hide the other checks either.
            LOG.exception('The check %s failed', self.name)
            found = [self._unknown(f'the check failed: {type(error).__name__}: {error}')]
        found = found or [Finding(Level.OK, str(self.system), 'as expected', self.promise, '')]
        return [dataclasses.replace(one, check=self.name) for one in found]

    def _unknown(self, reason: str) -> Finding:
        observed = ' '.join(reason.split())
        return Finding(Level.UNKNOWN, str(self.system), observed, self.promise, self.system.remedy)


def run_all(checks: Sequence[Check], sources: Sources) -> list[Finding]:
    """Run checks one after another; return their findings in this order."""
    return [one for check in checks for one in check.run(sources)]
