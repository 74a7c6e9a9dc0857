# SPDX-License-Identifier: Apache-2.0
"""Compare the placement of an image with the placement expected for its volume type."""

import collections
import dataclasses

from tempest.lib import exceptions as tempest_exceptions

from trove_ceph_tempest_plugin import ceph


@dataclasses.dataclass(frozen=True)
class Expected:
    """Expected placement of the volumes of a type; without a failure domain only the class."""

    pool: str
    device_class: str
    copies: int = 1
    failure_domain: str = ''


def parse(items: list[str]) -> dict[str, Expected]:
    """Return the placements of the option ``[trove_ceph] placement`` by volume type.

    :raises tempest.lib.exceptions.InvalidConfiguration: an item is malformed
    """
    expected = {}
    for item in items:
        match item.split(':'):
            case [volume_type, pool, device_class]:
                expected[volume_type] = Expected(pool, device_class)
            case [volume_type, pool, device_class, copies, domain] if copies.isdigit():
                expected[volume_type] = Expected(pool, device_class, int(copies), domain)
            case _:
                raise tempest_exceptions.InvalidConfiguration(
                    '[trove_ceph] placement: expected TYPE:POOL:DEVICE_CLASS or '
                    f'TYPE:POOL:DEVICE_CLASS:COPIES:FAILURE_DOMAIN, found {item!r}'
                )
    return expected


def survey(cluster: ceph.Ceph, image: ceph.Image, expected: Expected) -> tuple[dict, list[str]]:
    """Return the placement of the objects of an image, and its faults.

    The monitors map each existing object, so this is the actual location of the data, not the one
    that a CRUSH rule prescribes.

    :returns: figures for the result, and one line for each fault
    """
    objects = cluster.objects(image)
    mapped = cluster.osds_of(image.data_pool, objects)
    osds = cluster.osds()
    count = collections.Counter(osd for acting in mapped.values() for osd in acting)
    figures = {
        'pool': image.data_pool,
        'objects': len(objects),
        'copies_by_osd': {f'osd.{osd}': n for osd, n in sorted(count.items())},
        'device_classes': sorted({osds[osd].device_class for osd in count}),
    }
    faults = [] if objects else [f'{image.pool}/{image.name} has no objects']
    faults += [
        f'osd.{osd} of class {osds[osd].device_class or "none"} holds {n} copies of objects, '
        f'expected on {expected.device_class}'
        for osd, n in sorted(count.items())
        if osds[osd].device_class != expected.device_class
    ]
    if expected.failure_domain:
        faults += _too_close(mapped, osds, expected)
    return figures, faults


def _too_close(mapped, osds, expected):
    domain = expected.failure_domain
    for name, acting in mapped.items():
        buckets = {osds[osd].buckets.get(domain) for osd in acting} - {None}
        if len(buckets) < expected.copies:
            yield (
                f'{name} is in {len(buckets)} buckets of type {domain}, '
                f'expected {expected.copies}: {sorted(buckets)}'
            )
