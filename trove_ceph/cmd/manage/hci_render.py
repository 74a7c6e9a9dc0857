# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage hci render`` and ``hci settings``: what to deploy on hosts, and why."""

import argparse
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trove_ceph import exceptions, schema_problems
from trove_ceph.cmd.manage import base, columns, hci
from trove_ceph.hci import host_settings, hosts_file, report
from trove_ceph.hci.host_settings import Area, Verdict
from trove_ceph.hci.render import files, tree, values
from trove_ceph.schema_parts import NAME

_USER = {
    'type': 'string',
    'pattern': '^(?!client\\.)[A-Za-z0-9][A-Za-z0-9._-]*\\Z',
    'description': 'a user of Ceph by its name without "client.", such as cinder',
}
_UUID = {
    'type': 'string',
    'pattern': '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\\Z',
    'description': 'a UUID such as 457eb676-33da-42ec-9a8c-9293d545c337',
}
_EXIT_CODES = """\
exit status:
  0  the files are in the directory
  2  the command line or the file is wrong, a host cannot carry the load, or a file in the directory
     is not of this command; nothing was written
"""


class Render(hci.HostsCommand, base.Report):
    """Write the plan in the forms that operators deploy; change nothing on the hosts.

    ceph/config.sh                   "ceph config set"
    ceph/osds/HOST.yaml              cephadm's specifications of the OSDs of a host
    hosts/HOST/etc                   nova.conf.d, sysctl.d, udev and TuneD of each host
    kolla/                           /etc/kolla/config and globals.d of Kolla-Ansible
    devstack/HOST/local.conf         sections for a DevStack on the host
    openstack/nova-scheduler.conf    filters that nova-scheduler needs
    openstack/hosts.sh               host aggregates, properties of images and flavors

    The files follow from the plan and from the table that "hci settings" prints. A second run
    changes nothing if neither has changed.
    """

    exit_codes = _EXIT_CODES
    examples = """\
examples:
  Look at the plan, write it, and see what a change of the file changes:
    trove-ceph-manage hci plan /etc/trove-ceph/hci.yaml
    trove-ceph-manage hci render /etc/trove-ceph/hci.yaml --output /srv/hci
    git -C /srv/hci diff

  With root disks in Ceph, as the user and with the secret that libvirt knows:
    trove-ceph-manage hci render /etc/trove-ceph/hci.yaml --output /srv/hci --rbd-user nova \\
        --rbd-secret-uuid 457eb676-33da-42ec-9a8c-9293d545c337

  Deploy to a Ceph of cephadm:
    sh /srv/hci/ceph/config.sh
    ceph orch apply -i /srv/hci/ceph/osds/hci-1.yaml --dry-run
"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        default = values.CephClient()
        parser.add_argument(
            '--output', required=True, metavar='DIRECTORY', help='where the files are written'
        )
        parser.add_argument(
            '--force', action='store_true', help='replace files that this command did not write'
        )
        parser.add_argument(
            '--huge-pages',
            action='store_true',
            help='allocate the huge pages of the plan; every flavor on the hosts then needs '
            'hw:mem_page_size, which openstack/hosts.sh sets, or guests take the memory of OSDs',
        )
        parser.add_argument(
            '--rbd-user',
            type=_text(_USER),
            default=default.user,
            metavar='NAME',
            help='the user of Ceph for guests, without "client." (default: %(default)s)',
        )
        parser.add_argument(
            '--rbd-secret-uuid',
            type=_text(_UUID),
            metavar='UUID',
            help="libvirt's secret with that user's key; not written without it",
        )
        parser.add_argument(
            '--nova-pool',
            type=_text(NAME),
            default=default.pool,
            metavar='POOL',
            help='the pool of root disks, if they are in Ceph (default: %(default)s)',
        )
        return parser

    def make_report(self, parsed_args: argparse.Namespace) -> tuple[Mapping[str, Any], str]:
        """Write the files; return what was changed."""
        deployment = _deployment(parsed_args)
        result = files.write(
            Path(parsed_args.output), tree.files(deployment), force=parsed_args.force
        )
        lines = [f'written: {path}' for path in result.changed]
        lines += [f'left over from an earlier run: {path}' for path in result.left]
        lines.append(f'{len(result.changed)} written, {len(result.unchanged)} unchanged')
        if deployment.plan.findings:
            self.note(report.findings_text(deployment.plan.findings))
        document = {'output': parsed_args.output, **dataclasses.asdict(result)}
        return document, '\n'.join(lines)


class Settings(base.Lister):
    """Show the settings of hosts, of Ceph and of Nova: what is written, and why.

    The table has every setting of the reference architectures with its verdict of today (kept,
    changed, dropped), and those that they lack (added).
    """

    table_columns = ('area', 'name', 'verdict', 'value')
    exit_codes = 'exit status:\n  0  always\n'
    examples = """\
examples:
  What becomes of the settings of the reference architectures, and why:
    trove-ceph-manage hci settings -c name -c verdict -c reason
    trove-ceph-manage hci settings --verdict dropped -f json

  Everything about Ceph:
    trove-ceph-manage hci settings --area ceph -f yaml
"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--area', choices=[str(one) for one in Area], help='only what is read there'
        )
        parser.add_argument(
            '--verdict', choices=[str(one) for one in Verdict], help='only with this verdict'
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Return a row for each setting."""
        rows = [
            dataclasses.asdict(one)
            for one in host_settings.load()
            if parsed_args.area in (None, one.area) and parsed_args.verdict in (None, one.verdict)
        ]
        names = [field.name for field in dataclasses.fields(host_settings.Setting)]
        return names, [[columns.of(row[name]) for name in names] for row in rows]


def _text(kind: Mapping[str, Any]) -> Callable[[str], str]:
    """Return what reads a text that is written to files, in a form that they can have."""

    def read(text: str) -> str:
        for _, problem in schema_problems.problems(text, kind):
            raise argparse.ArgumentTypeError(problem)
        return text

    return read


def _deployment(parsed_args: argparse.Namespace) -> values.Deployment:
    """Return what is rendered.

    :raises InvalidHostsError: the file is invalid, or the plan must not be deployed
    """
    plan = hci.read_plan(parsed_args)
    if plan.errors:
        first = plan.errors[0]
        raise exceptions.InvalidHostsError(
            f'{parsed_args.file}: the plan must not be deployed: {first.field}: {first.observed}; '
            f'expected: {first.expected}; {first.advice}. "trove-ceph-manage hci check" prints all '
            f'errors ({len(plan.errors)})'
        )
    replaced = [
        f'--{name.replace("_", "-")} {value}'
        for name in ('guests_per_host', 'osds_per_device', 'vcpus_per_osd')
        if (value := getattr(parsed_args, name)) is not None
    ]
    return values.Deployment(
        plan=plan,
        inventory=hosts_file.load(parsed_args.file).inventory,
        client=values.CephClient(
            parsed_args.rbd_user, parsed_args.nova_pool, parsed_args.rbd_secret_uuid
        ),
        header=files.header(Path(parsed_args.file), replaced),
        huge_pages=parsed_args.huge_pages,
    )
