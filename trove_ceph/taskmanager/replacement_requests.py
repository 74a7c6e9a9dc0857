# SPDX-License-Identifier: Apache-2.0
"""Trove's requests that a replacement of the server carries out, if it can."""

from collections.abc import Callable, Mapping
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging
from trove.common import notification

from trove_ceph import exceptions
from trove_ceph.db.replacement_record import ReplacementRecord, ReplacementState
from trove_ceph.strategies.backup import tenant_errors
from trove_ceph.strategies.replacement.dependencies import ReplacementDependencies
from trove_ceph.taskmanager import guest_factory, replacements, warm_resize
from trove_ceph.trove_adapter import instance_flavor

LOG = logging.getLogger(__name__)


class ReplacementRequests:
    """The requests; each method returns False if it is Trove's own, and then has done nothing.

    :param get_deps: returns the dependencies of replacements; called at each request, since the
        services need not be up when the process starts
    :param get_replacements: returns those on which this process works
    :param is_ours: returns whether an instance has our guest agent, and its volume is on a tier
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        get_deps: Callable[[], ReplacementDependencies],
        get_replacements: Callable[[], replacements.Replacements],
        is_ours: Callable[[str], bool],
    ):
        self._conf = conf
        self._get_deps = get_deps
        self._get_replacements = get_replacements
        self._is_ours = is_ours

    def resize(
        self,
        context: Any,
        instance_id: str,
        old_flavor: Mapping[str, Any],
        new_flavor: Mapping[str, Any],
    ) -> bool:
        """Change the flavor of an instance on a warm guest; wait for the end."""
        growth_mib = new_flavor['ram'] - old_flavor['ram']
        record = self._request_resize(instance_id, new_flavor['id'], growth_mib)
        if record is None:
            return False
        timeout_sec = self._conf.trove_ceph_replacement.resize_timeout_sec
        with notification.EndNotification(context):
            with tenant_errors.translated_errors(f'instance {instance_id}'):
                ended = self._get_replacements().wait(record.replacement_id, timeout_sec)
            if ended.state is ReplacementState.FAILED:
                # The record is written for tenants, who read this as the fault of the instance.
                raise exceptions.TroveCephError(f'instance {instance_id}: {ended.error}')
            if ended.state is ReplacementState.COMPLETED:
                instance_flavor.notify_changed(context, instance_id, old_flavor, new_flavor)
        return True

    def rebuild(self, instance_id: str, image_id: str) -> bool:
        """Give an instance a server of its guest image, on a warm guest; do not wait for it."""
        deps = self._find_deps(instance_id)
        if deps is None:
            return False
        return warm_resize.request_rebuild(deps, instance_id, image_id) is not None

    def _request_resize(
        self, instance_id: str, flavor_id: str, ram_growth_mib: int
    ) -> ReplacementRecord | None:
        deps = self._find_deps(instance_id)
        if deps is None:
            return None
        return warm_resize.request(deps, instance_id, flavor_id, ram_growth_mib)

    def _find_deps(self, instance_id: str) -> ReplacementDependencies | None:
        """Return the dependencies; None: no warm guest can become the server of an instance."""
        if not guest_factory.pools(self._conf) or not self._is_ours(instance_id):
            return None
        try:
            return self._get_deps()
        except Exception as error:
            # Whatever it is, Trove can change the server without a warm guest.
            LOG.warning('Warm guests are not used: %s', error)
            return None
