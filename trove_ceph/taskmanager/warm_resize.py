# SPDX-License-Identifier: Apache-2.0
"""Change the flavor of an instance on a warm guest, in seconds instead of minutes.

If no guest fits, Trove changes it, by a resize in Nova.
"""

import dataclasses

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.replacement_record import ReplacementRecord
from trove_ceph.strategies.replacement import requests
from trove_ceph.strategies.replacement.dependencies import ReplacementDependencies

LOG = logging.getLogger(__name__)


def request(
    deps: ReplacementDependencies, instance_id: str, flavor_id: str
) -> ReplacementRecord | None:
    """Claim a guest of a flavor, and request that it becomes the server of an instance.

    Trove's API has set the task of the instance, RESIZING.

    :returns: None: Trove must change the flavor; nothing was changed
    :raises ServiceUnavailableError: the database did not answer to the request
    """
    try:
        record = _new_record(deps, instance_id, flavor_id)
        needs = deps.servers.find_needs(record)
        # What it needs is noted with the rest, by the first attempt.
        with_needs = dataclasses.replace(
            record, image_id=needs.image_id, availability_zone=needs.availability_zone
        )
        guest = deps.guests.claim(with_needs, None)
    except exceptions.TroveCephError as error:
        LOG.info('Instance %s: its flavor is not changed on a warm guest: %s', instance_id, error)
        return None
    if guest is None:
        return None
    try:
        return deps.store.request(record, requests.RESIZE_TASK)
    except exceptions.ReplacementRefusedError as error:
        LOG.info('Instance %s: its flavor is not changed on a warm guest: %s', instance_id, error)
        deps.guests.retire(guest.guest_id, f'instance {instance_id} is resized without it')
        return None


def _new_record(
    deps: ReplacementDependencies, instance_id: str, flavor_id: str
) -> ReplacementRecord:
    facts = deps.instances.find(instance_id)
    if facts is None:
        raise exceptions.ReplacementRefusedError(f'instance {instance_id}: does not exist')
    return requests.new_resize(facts, flavor_id, deps.store.now())
