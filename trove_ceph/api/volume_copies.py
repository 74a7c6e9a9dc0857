# SPDX-License-Identifier: Apache-2.0
"""How many copies the storage keeps of the volume of an instance."""

from typing import Any

import cinderclient.exceptions
import keystoneauth1.exceptions
from oslo_log import log as logging
from trove.common import clients

from trove_ceph import exceptions
from trove_ceph.tiers import tiers_file

LOG = logging.getLogger(__name__)


def find(context: Any, row: Any, path: str) -> int | None:
    """Return the number of copies of the tier of an instance's volume type; None: unknown.

    It takes one request to Cinder.

    :param row: of Trove
    :param path: of the tiers file, which may be missing on hosts of trove-api
    """
    if row.volume_id is None:
        return None
    try:
        cinder = clients.create_cinder_client(context, region_name=row.region_id)
        volume_type = cinder.volumes.get(row.volume_id).volume_type
        tiers = tiers_file.load(path).tiers.values()
    except (
        cinderclient.exceptions.ClientException,
        keystoneauth1.exceptions.ClientException,
        exceptions.InvalidTiersError,
    ) as error:
        LOG.warning('Instance %s is shown without the copies of its volume: %s', row.id, error)
        return None
    copies = (
        one.copies for one in tiers if one.volume_type and one.volume_type.name == volume_type
    )
    return next(copies, None)
