# SPDX-License-Identifier: Apache-2.0
"""Change the flavor or the guest image of an instance on a warm guest, in seconds, not minutes.

If no guest fits, Trove changes it, by a resize or a rebuild in Nova.
"""

import dataclasses
from collections.abc import Callable

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.replacement_record import ReplacementRecord
from trove_ceph.strategies.replacement import requests
from trove_ceph.strategies.replacement.dependencies import InstanceFacts, ReplacementDependencies

LOG = logging.getLogger(__name__)


def request(
    deps: ReplacementDependencies, instance_id: str, flavor_id: str, ram_growth_mib: int
) -> ReplacementRecord | None:
    """Claim a guest of a flavor, and request that it becomes the server of an instance.

    Trove's API has set the task of the instance, RESIZING.

    :param ram_growth_mib: what Trove's API has added to the memory that the project uses
    :returns: None: Trove must change the flavor; nothing was changed
    :raises ServiceUnavailableError: the database did not answer to the request
    """
    return _request(
        deps,
        instance_id,
        lambda facts: requests.new_resize(facts, flavor_id, ram_growth_mib, deps.store.now()),
    )


def request_rebuild(
    deps: ReplacementDependencies, instance_id: str, image_id: str
) -> ReplacementRecord | None:
    """Claim a guest of an image, and request that it becomes the server of an instance.

    Trove's API has set the task of the instance, BUILDING, with which its tenant cannot delete it.
    The request replaces it. Warm guests have the image of the datastore version; Trove must rebuild
    an instance on another one.

    :returns: None: Trove must rebuild the server; nothing was changed
    :raises ServiceUnavailableError: the database did not answer to the request
    """
    return _request(
        deps,
        instance_id,
        lambda facts: requests.new_rebuild(facts, image_id, deps.store.now()),
        image_id,
    )


def _request(
    deps: ReplacementDependencies,
    instance_id: str,
    new_record: Callable[[InstanceFacts], ReplacementRecord],
    image_id: str | None = None,
) -> ReplacementRecord | None:
    """Claim a guest and request a replacement.

    :param image_id: which the guest must have; None: that of the datastore version
    """
    try:
        facts = deps.instances.find(instance_id)
        if facts is None:
            raise exceptions.ReplacementRefusedError(f'instance {instance_id}: does not exist')
        record = new_record(facts)
        if deps.servers.is_in_group(record):
            raise exceptions.ReplacementRefusedError(
                f'instance {instance_id}: is in a server group, which no warm guest can join'
            )
        needs = deps.servers.find_needs(record)
        if image_id not in (None, needs.image_id):
            raise exceptions.ReplacementRefusedError(
                f'instance {instance_id}: warm guests have image {needs.image_id}, not {image_id}'
            )
        # What it needs is noted with the rest, by the first attempt.
        with_needs = dataclasses.replace(
            record, image_id=needs.image_id, availability_zone=needs.availability_zone
        )
        guest = deps.guests.claim(with_needs, None)
    except exceptions.TroveCephError as error:
        LOG.info('Instance %s: a warm guest does not become its server: %s', instance_id, error)
        return None
    if guest is None:
        return None
    try:
        assert record.kind.requested_task is not None
        return deps.store.request(record, record.kind.requested_task)
    except exceptions.ReplacementRefusedError as error:
        LOG.info('Instance %s: a warm guest does not become its server: %s', instance_id, error)
        deps.guests.retire(guest.guest_id, f'the {record.kind} of {instance_id} is done without it')
        return None
