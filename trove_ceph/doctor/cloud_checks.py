# SPDX-License-Identifier: Apache-2.0
"""Checks of the services of OpenStack, of their configuration, and of the message bus."""

import datetime
from collections.abc import Iterator, Mapping, Sequence

from trove_ceph import times
from trove_ceph.doctor import cloud_facts, remedies, settings
from trove_ceph.doctor.bus import BusFacts
from trove_ceph.doctor.check import Check, System
from trove_ceph.doctor.finding import Finding, error, unknown, warning
from trove_ceph.doctor.measurement import Measurement
from trove_ceph.tiers import resources, show, tier_types
from trove_ceph.trove_compat import window

#: Requests to the storage service have a validity that bears this difference of clocks.
MOST_SKEW_SEC = 30
_COMMANDS = {'cinder': remedies.VOLUME_SERVICES, 'nova': remedies.COMPUTE_SERVICES}


def check_services(services: Sequence[cloud_facts.ServiceFacts]) -> Iterator[Finding]:
    """Yield the services that are down although nobody has disabled them."""
    for one in services:
        if one.is_enabled and not one.is_up:
            since = times.utc_text(one.updated_at) if one.updated_at else 'never'
            yield error(
                f'{one.binary} on {one.host}',
                f'down; last heartbeat {since}',
                'up, or disabled',
                _COMMANDS[one.project],
            )


def check_clocks(
    facts: tuple[Sequence[cloud_facts.ServiceFacts], datetime.datetime],
) -> Iterator[Finding]:
    """Yield the services whose heartbeats are in the future of this host."""
    services, now = facts
    for one in services:
        if one.updated_at is None:
            continue
        ahead = (one.updated_at - now).total_seconds()
        if ahead > MOST_SKEW_SEC:
            yield error(
                f'clock of {one.host}',
                f'{ahead:.0f} s ahead of this host, by the heartbeat of {one.binary}',
                f'at most {MOST_SKEW_SEC} s, or signed requests are refused',
                _COMMANDS[one.project],
            )


def check_configuration(found: settings.Settings) -> Iterator[Finding]:
    """Yield the options with which an operation fails or costs more than it must."""
    for value in found.values:
        requirement = value.requirement
        if requirement.holds(value.value):
            continue
        option = requirement.option
        observed = '(hidden)' if option.secret else repr(value.value)
        yield Finding(
            requirement.level,
            f'{requirement.service} [{value.group}] {option.name}',
            observed,
            requirement.expected,
            remedies.edit(
                option.name, value.group, requirement.all_readers, requirement.only_while
            ),
        )
    for service, reason in found.unread.items():
        yield unknown(
            f'configuration of {service}',
            reason,
            'its files; name them, or run this where the service runs',
            remedies.HELP,
        )


def check_extensions(missing: Sequence[str]) -> Iterator[Finding]:
    """Yield the extensions that Trove's API has not loaded."""
    for name in missing:
        yield error(
            f'API extension {name}',
            f"404 for {cloud_facts.API_LISTS[name]}: Trove's API has not loaded it",
            'installed beside each trove-api, which loads it at its start',
            remedies.INSTALL,
        )


def check_trove_version(version: str) -> Iterator[Finding]:
    """Yield a release of Trove whose private parts nobody has tested."""
    if not window.includes(version):
        expected = f'{window.LEAST} to {window.NEWEST}'
        yield error('Trove', version, expected, remedies.INSTALL_TROVE)


def check_bus(facts: BusFacts) -> Iterator[Finding]:
    """Yield what lets a guest reach the storage service."""
    if facts.problem:
        yield error('message bus of the storage service', facts.problem, 'isolated', remedies.KEYS)
    if facts.enters:
        yield error(
            "the guests' user of RabbitMQ",
            "enters the storage service's virtual host",
            'refused: a tenant who breaks out of MySQL could read and drop requests',
            remedies.PERMISSIONS,
        )
    if facts.enters is None:
        yield unknown(
            "the guests' user of RabbitMQ",
            facts.unknown_because,
            "refused by the storage service's virtual host",
            remedies.PERMISSIONS,
        )
    if not facts.is_separate:
        yield warning(
            "the guests' user of RabbitMQ",
            f"{facts.guest_file} has the user of Trove's services",
            'a user of their own, with fewer permissions',
            remedies.PERMISSIONS,
        )


def check_promises(
    facts: tuple[
        tier_types.TiersFile,
        resources.CephState,
        resources.CinderState,
        Mapping[str, Measurement],
    ],
) -> Iterator[Finding]:
    """Yield the pools that are promised more IOPS than they were measured to have.

    Erasure-coded pools are not measured.
    """
    content, ceph, cinder, measurements = facts
    for row in show.rows(content, resources.Observed(ceph=ceph, cinder=cinder)):
        if row.promised_iops and not content.tiers[row.tier].erasure:
            yield from _promise(row, row.promised_iops, measurements.get(row.pool))


def _promise(row: show.Row, promised: int, measured: Measurement | None) -> Iterator[Finding]:
    thing = f'pool {row.pool}'
    if measured is None:
        observed = f'{promised} IOPS promised to {row.volumes} volumes; never measured'
        yield warning(thing, observed, 'a measured capability', remedies.MEASURE)
        return
    observed = (
        f'{promised} IOPS promised; measured on {measured.measured_at}: '
        f'{measured.read_iops:.0f} reads or {measured.write_iops:.0f} writes'
    )
    if promised > measured.read_iops:
        yield error(thing, observed, 'no more than it can do', remedies.TIERS_SHOW)
    elif promised > measured.write_iops:
        expected = 'no more than it can write, if all volumes write at once'
        yield warning(thing, observed, expected, remedies.TIERS_SHOW)
    if row.osds is not None and row.osds < measured.osds:
        observed = f'{row.osds} OSDs serve it; it was measured with {measured.osds}'
        yield warning(thing, observed, 'a measurement of what there is now', remedies.MEASURE)


CHECKS = (
    Check(
        'promised-iops',
        System.CEPH,
        'pools can do the IOPS that are promised to their volumes (--measure)',
        lambda sources: (
            sources.tiers(),
            sources.ceph(),
            sources.cinder(),
            sources.measurements(),
        ),
        check_promises,
    ),
    Check(
        'services',
        System.OPENSTACK,
        'all enabled services of Cinder and Nova are up',
        lambda sources: sources.services(),
        check_services,
    ),
    Check(
        'service-clocks',
        System.OPENSTACK,
        f'heartbeats of Cinder and Nova are at most {MOST_SKEW_SEC} s in the future',
        lambda sources: (sources.services(), sources.now()),
        check_clocks,
    ),
    Check(
        'configuration',
        System.OPENSTACK,
        'Trove, Cinder and Nova have the options that the operations rely on',
        lambda sources: sources.settings(),
        check_configuration,
    ),
    Check(
        'trove-version',
        System.TROVE,
        f'Trove {window.LEAST} to {window.NEWEST}',
        lambda sources: sources.trove_version(),
        check_trove_version,
    ),
    Check(
        'api-extensions',
        System.TROVE,
        "Trove's API has loaded the extensions of trove_ceph",
        lambda sources: sources.missing_extensions(),
        check_extensions,
    ),
    Check(
        'message-bus',
        System.TROVE,
        "the guests' user cannot enter the storage service's virtual host",
        lambda sources: sources.bus(),
        check_bus,
    ),
)
