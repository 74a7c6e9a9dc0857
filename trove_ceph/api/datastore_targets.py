# SPDX-License-Identifier: Apache-2.0
"""The target of a policy for a datastore, or for one version of it."""

from trove.common import exception as trove_exceptions
from trove.datastore import models as datastore_models

from trove_ceph.api import controller


def check(key: str, target: str) -> None:
    """Refuse a target that is not the name of a datastore or of a datastore version.

    :param key: of the policy in the body of the request
    :raises BadRequest: it is not
    """
    name, slash, version = target.partition('/')
    if slash and not version:
        raise _bad(key, f'{target!r} has no version after the slash')
    try:
        with controller.translated():
            datastore = datastore_models.Datastore.load(name)
            if version:
                found = datastore_models.DatastoreVersion.load(datastore, version)
    except trove_exceptions.NotFound as error:
        raise _bad(key, f'{target!r} is not a datastore: {error}') from error
    except trove_exceptions.DatastoreVersionsNoUniqueMatch as error:
        raise _bad(key, f'{target!r} matches several versions: {error}') from error
    # Policies are matched to instances by these names.
    if datastore.name != name:
        raise _bad(key, f'must be the name {datastore.name} instead of an id')
    if version and found.name != version:
        raise _bad(key, f'must be the name {found.name} instead of an id')


def _bad(key: str, problem: str) -> trove_exceptions.BadRequest:
    return trove_exceptions.BadRequest(message=f'{key}.target: {problem}')
