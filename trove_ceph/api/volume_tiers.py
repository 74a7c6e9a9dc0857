# SPDX-License-Identifier: Apache-2.0
"""The tiers that hold the volumes of instances."""

from collections.abc import Iterable, Mapping
from typing import Any

import cinderclient.exceptions
import keystoneauth1.exceptions
from oslo_log import log as logging
from trove.common import clients
from trove.common import exception as trove_exceptions

from trove_ceph import exceptions
from trove_ceph.tiers import tier_types, tiers_file

LOG = logging.getLogger(__name__)


def find(context: Any, rows: Iterable[Any], path: str) -> Mapping[str, tier_types.Tier]:
    """Return the tiers of instances by their ids, without those that are not known.

    It takes one request to Cinder for each instance.

    :param rows: of Trove
    :param path: of the tiers file, which may be missing on hosts of trove-api
    """
    found: dict[str, tier_types.Tier] = {}
    try:
        tiers = {
            one.volume_type.name: one
            for one in tiers_file.load(path).tiers.values()
            if one.volume_type
        }
        for row in rows:
            if (volume_type := _type_of(context, row)) in tiers:
                found[row.id] = tiers[volume_type]
    except (
        cinderclient.exceptions.ClientException,
        keystoneauth1.exceptions.ClientException,
        # The catalog has no Cinder in the region of the instance.
        trove_exceptions.NoServiceEndpoint,
        exceptions.InvalidTiersError,
    ) as error:
        LOG.warning('Instances are shown without their tiers: %s', error)
    return found


def _type_of(context: Any, row: Any) -> str | None:
    if row.volume_id is None:
        return None
    cinder = clients.create_cinder_client(context, region_name=row.region_id)
    try:
        return cinder.volumes.get(row.volume_id).volume_type
    except cinderclient.exceptions.NotFound as error:
        LOG.warning('Instance %s is shown without its tier: %s', row.id, error)
        return None
