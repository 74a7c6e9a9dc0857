# SPDX-License-Identifier: Apache-2.0
"""The image for Trove's own backups of a MySQL server."""

import inspect

from trove.guestagent.datastore import service


def of_version(app: service.BaseDbApp, version: str) -> str:
    """Return the image for a version of the datastore, if the option names an image without a tag.

    Trove 26 searches the registry for an image of a shorter version, too.

    :param app: Trove's application object
    :param version: the present value of the option ``datastore_version``
    """
    find = service.BaseDbApp.get_backup_image
    # Trove 25 reads the option itself.
    found = find(app, version) if 'ds_version' in inspect.signature(find).parameters else find(app)
    return str(found)
