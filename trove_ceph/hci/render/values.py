# SPDX-License-Identifier: Apache-2.0
"""Values of the table of settings for a plan, a host or a device."""

import functools
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import jinja2

from trove_ceph.hci import host_settings, report
from trove_ceph.hci.host_settings import Area, Setting
from trove_ceph.hci.inventory import Device, Host, Inventory
from trove_ceph.hci.osds import device_class
from trove_ceph.hci.plan import HostPlan, OsdPlan, Plan


@dataclass(frozen=True)
class CephClient:
    """How Nova connects to Ceph.

    :ivar user: the user of Ceph, without ``client.``
    :ivar pool: the pool of root disks
    :ivar secret_uuid: libvirt's secret with the user's key; None: not known
    """

    user: str = 'cinder'
    pool: str = 'vms'
    secret_uuid: str | None = None


@dataclass(frozen=True)
class Deployment:
    """What is rendered.

    :ivar header: lines for the top of each file, without the sign of a comment
    :ivar huge_pages: whether hosts allocate the huge pages of the plan
    """

    plan: Plan
    inventory: Inventory
    client: CephClient
    header: tuple[str, ...]
    huge_pages: bool = False

    def host(self, name: str) -> Host:
        """Return a host of the inventory by its name."""
        return next(one for one in self.inventory.hosts if one.name == name)


@dataclass(frozen=True)
class Written:
    """A setting with its value; a value of several lines is given several times.

    :ivar who: the part of Ceph that it is for; empty for other areas
    """

    setting: Setting
    who: str
    lines: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the setting."""
        return self.setting.name

    @property
    def value(self) -> str:
        """The value of a setting that is given once."""
        (value,) = self.lines
        return value


@functools.cache
def environment() -> jinja2.Environment:
    """Return the environment of the package's templates; an unknown name in one is an error."""
    # The output is configuration and shell scripts, where HTML's escapes would be wrong.
    made = jinja2.Environment(  # nosec B701
        loader=jinja2.PackageLoader(__package__),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters['cpu_list'] = report.cpu_list
    made.filters['quoted'] = lambda value: shlex.quote(str(value))
    return made


def of_cluster(deployment: Deployment) -> list[Written]:
    """Return the settings of Ceph, for the cluster and then for each host."""
    settings = [one for one in _settings(Area.CEPH) if '{{' not in one.who]
    found = list(_written(settings, _names(deployment)))
    for profile in deployment.plan.hosts:
        settings = [one for one in _settings(Area.CEPH) if '{{' in one.who]
        found += _written(settings, _names(deployment, profile))
    return found


def of_host(area: Area, deployment: Deployment, profile: HostPlan) -> list[Written]:
    """Return the settings of one area for a host."""
    return list(_written(_settings(area), _names(deployment, profile)))


def of_osds(deployment: Deployment, profile: HostPlan, osds: Collection[OsdPlan]) -> list[Written]:
    """Return the settings of OSDs that share a specification, on the NUMA nodes that they use."""
    used = {one.numa_node for one in osds}
    nodes = [node for node in profile.nodes if node.number in used]
    names = _names(deployment, profile) | {'nodes': nodes, 'huge_pages': deployment.huge_pages}
    return list(_written(_settings(Area.OSD_SPEC), names))


def of_device(deployment: Deployment, profile: HostPlan, device: Device) -> list[Written]:
    """Return the settings of the block queue of a device."""
    names = _names(deployment, profile) | {'device': device}
    return list(_written(_settings(Area.BLOCK_QUEUE), names))


def of_image() -> list[Written]:
    """Return the properties of the guests' images."""
    return list(_written(_settings(Area.IMAGE), {}))


def render(template: str, deployment: Deployment, **names: Any) -> str:
    """Return the text of a template of this package."""
    found = environment().get_template(template)
    return found.render(header=deployment.header, plan=deployment.plan, **names)


def _settings(area: Area) -> list[Setting]:
    return [one for one in host_settings.load() if one.area is area and one.value is not None]


def _names(deployment: Deployment, profile: HostPlan | None = None) -> dict[str, Any]:
    names: dict[str, Any] = {'plan': deployment.plan, 'ceph': deployment.client}
    if profile is not None:
        host = deployment.host(profile.name)
        names |= {'host': profile, 'data_class': device_class(host)}
    return names


def _written(settings: list[Setting], names: dict[str, Any]) -> Iterator[Written]:
    """Yield each setting that has a value."""
    for setting in settings:
        text = environment().from_string(setting.value or '').render(names)
        lines = tuple(line for line in text.splitlines() if line)
        if lines:
            who = environment().from_string(setting.who).render(names)
            yield Written(setting, who, lines)
