# SPDX-License-Identifier: Apache-2.0
"""Options of the process that applies the limits of tiers to volumes."""

import copy

from keystoneauth1 import loading
from oslo_config import cfg

GROUP = cfg.OptGroup(
    'trove_ceph_qos',
    title='Limits of volumes',
    help='How trove-ceph-storage applies the limits of tiers with "qos: image". It lists volumes '
    'in Cinder as the user of the options from auth_type on, who must be an administrator, to see '
    'the volumes of all projects and their back ends. The tiers are those of [trove_ceph_storage] '
    'tiers_file, which is read again for each sweep.',
)

OPTS = [
    cfg.BoolOpt(
        'enabled',
        default=False,
        help='Apply limits. Without it, volumes of such tiers have no limits, or those that '
        '"trove-ceph-manage qos apply" has set. Several processes may do it at once.',
    ),
    cfg.IntOpt(
        'sweep_interval_sec',
        default=600,
        min=10,
        max=86400,
        help='Seconds between two sweeps over all volumes. A sweep makes about ten small requests '
        'to Ceph for each volume. Without notifications, a resized volume keeps its old limit for '
        'up to this time.',
    ),
    cfg.ListOpt(
        'notification_topics',
        default=['trove-ceph-qos'],
        help='Topics to which Cinder sends notifications for this service alone: one of those in '
        '[oslo_messaging_notifications] topics of its configuration, where driver must be '
        'messagingv2. A volume that is created, resized, retyped or attached then gets its limit '
        'at once. If others consume the same topic, each gets only some of the notifications. '
        'Empty: do not listen.',
    ),
    cfg.StrOpt(
        'notification_exchange',
        default='openstack',
        help='Exchange of Cinder\'s notifications, as set by control_exchange in its '
        'configuration.',
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Make the options readable on ``conf``, those of keystoneauth too; harmless when repeated."""
    # A copy: keystoneauth adds options to the group, which other configurations must not get.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(OPTS, group=GROUP.name)
    loading.register_auth_conf_options(conf, GROUP.name)
    loading.register_session_conf_options(conf, GROUP.name)
    loading.register_adapter_conf_options(conf, GROUP.name, include_deprecated=False)


def list_opts() -> list[cfg.Opt]:
    """Return all options of the group for the sample, with those of auth_type password."""
    return [
        *OPTS,
        *loading.get_auth_common_conf_options(),
        *loading.get_auth_plugin_conf_options('password'),
        *loading.get_session_conf_options(),
        *loading.get_adapter_conf_options(include_deprecated=False),
    ]
