# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage hci``: plan and check hosts that run OSDs and databases."""

import argparse
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from trove_ceph import schema_problems, yaml_file
from trove_ceph.cmd.manage import base
from trove_ceph.hci import hosts_file, planning, report, schema
from trove_ceph.hci.plan import Plan as HciPlan
from trove_ceph.hci.workload import OsdChoices

_EXIT_CODES = """\
exit status:
  0  the plan meets every rule (check), or has no errors (plan)
  1  warnings only (check)
  2  the command line or the file is wrong, or a host cannot carry the load: the plan must not be
     deployed
"""
_EXAMPLES = """\
examples:
  Plan the hosts of a file, and see where each value comes from:
    trove-ceph-manage hci plan /etc/trove-ceph/hci.yaml
    trove-ceph-manage hci plan /etc/trove-ceph/hci.yaml --explain

  What if each NVMe device had four OSDs, as the reference architectures of 2016 and 2018:
    trove-ceph-manage hci plan /etc/trove-ceph/hci.yaml --osds-per-device 4 --vcpus-per-osd 3

  Do the hosts carry 20 databases each?
    trove-ceph-manage hci check /etc/trove-ceph/hci.yaml --guests-per-host 20

  For other programs:
    trove-ceph-manage hci plan /etc/trove-ceph/hci.yaml -f json

  Write what the plan says for Nova, Ceph, Kolla-Ansible, DevStack and the hosts themselves:
    trove-ceph-manage hci render /etc/trove-ceph/hci.yaml --output /srv/hci

The commands read the file and nothing else, and change no host; only render writes files.
"""


class Group(base.Group):
    """Plan hyper-converged hosts, which run Ceph's OSDs and the servers of databases.

    One file describes the hosts and the load of each. What Nova reserves, how many OSDs there are
    and how much memory each has, and the CPUs of the host, of OSDs and of guests follow from it.
    """

    examples = _EXAMPLES
    exit_codes = _EXIT_CODES


class HostsCommand(base.Command):
    """A command that reads the file of hyper-converged hosts."""

    exit_codes = _EXIT_CODES

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser, with the file and what replaces values of it."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'file',
            nargs='?',
            default=hosts_file.DEFAULT_PATH,
            metavar='FILE',
            help='the file of hosts and workload (default: %(default)s)',
        )
        for name, kind, what in (
            ('--guests-per-host', schema.DATABASES_PER_HOST, 'workload.databases_per_host'),
            ('--osds-per-device', schema.OSDS_PER_DEVICE, 'osds.per_device'),
            ('--vcpus-per-osd', schema.VCPUS_PER_OSD, 'osds.vcpus'),
        ):
            parser.add_argument(
                name, type=_number(kind), metavar='NUMBER', help=f'replaces {what} of the file'
            )
        return parser


class Plan(HostsCommand, base.Report):
    """Show the profile of each host; change nothing."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--explain',
            action='store_true',
            help='show formula, numbers, source and limit of each value (JSON always has them)',
        )
        return parser

    def make_report(self, parsed_args: argparse.Namespace) -> tuple[Mapping[str, Any], str]:
        """Return the plan, as a document and as tables."""
        plan = read_plan(parsed_args)
        if plan.errors:
            self.exit_status = base.ExitStatus.REFUSED
        return report.document(plan), report.plan_text(plan, parsed_args.explain)


class Check(HostsCommand, base.Report):
    """Hold the hosts against the rules; print what breaks one."""

    def make_report(self, parsed_args: argparse.Namespace) -> tuple[Mapping[str, Any], str]:
        """Return the findings, and one line that sums them up."""
        plan = read_plan(parsed_args)
        if plan.errors:
            self.exit_status = base.ExitStatus.REFUSED
        elif plan.findings:
            self.exit_status = base.ExitStatus.DIFFERS
        document = report.document(plan)
        summary = report.summary(plan)
        text = '\n'.join(filter(None, [summary, report.findings_text(plan.findings)]))
        return {'summary': summary, 'findings': document['findings']}, text


def read_plan(parsed_args: argparse.Namespace) -> HciPlan:
    """Return the plan for the file, with what the command line replaces.

    :raises InvalidHostsError: the file cannot be read or is invalid
    """
    content = hosts_file.load(parsed_args.file)
    workload, choices = content.workload, content.choices
    if parsed_args.guests_per_host is not None:
        workload = dataclasses.replace(workload, databases_per_host=parsed_args.guests_per_host)
    given = OsdChoices(parsed_args.osds_per_device, parsed_args.vcpus_per_osd)
    choices = OsdChoices(
        per_device=choices.per_device if given.per_device is None else given.per_device,
        vcpus=choices.vcpus if given.vcpus is None else given.vcpus,
    )
    return planning.plan(content.inventory, workload, choices)


def _number(kind: Mapping[str, Any]) -> Callable[[str], Any]:
    """Return what reads a number with the bounds that it has in the file."""

    def read(text: str) -> Any:
        try:
            value = yaml_file.read_value(text)
        except (yaml.YAMLError, ValueError):
            value = text
        for _, problem in schema_problems.problems(value, kind):
            raise argparse.ArgumentTypeError(problem)
        return value

    return read
