# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage size``: from a fleet of databases to a cluster."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from trove_ceph import exceptions, yaml_file
from trove_ceph.cmd.manage import base
from trove_ceph.schema_problems import ValuePath
from trove_ceph.sizing import costs, crush, failure, fleet_file, plan, report, topology

_EXIT_CODES = """\
exit status:
  0  there is a cluster, and it keeps the rules
  1  values that are given break rules, or the failure leaves data degraded, lost or without space
  2  the fleet, the price table or the command line is wrong; nothing is written
  3  crushtool is missing or failed, or the picture cannot be written
"""
_EXAMPLES = """\
examples:
  Plan a cluster for the fleet in a file, and show why each value is as it is:
    trove-ceph-manage size --fleet /etc/trove-ceph/fleet.yaml --explain

  Without a file:
    trove-ceph-manage size --instances 200 --size 100GiB --iops-per-gib 30 --growth 30 \\
        --device-class nvme --device-size 3.84TB

  What remains when two hosts are lost at once, and a picture of it:
    trove-ceph-manage size --fleet fleet.yaml --fail host:2 --svg cluster.svg

  Compare with the prices that you pay:
    trove-ceph-manage size --fleet fleet.yaml --prices prices.yaml

A fleet file with all keys is in the folder of the shipped configuration files (fleet.yaml). A size
has a unit: 100GiB is 100 x 1024**3 bytes, 800GB is 800 x 1000**3 bytes.
"""
_DATABASES, _CLUSTER = ('databases', 0), ('cluster',)
_DEVICE = (*_CLUSTER, 'device')
#: Options that replace values of the fleet file: name, path of the value, form, and meaning.
_OPTIONS: tuple[tuple[str, ValuePath, str, str], ...] = (
    ('--instances', (*_DATABASES, 'instances'), 'N', 'number of databases'),
    ('--size', (*_DATABASES, 'size'), 'SIZE', 'size of the volume of each, such as 100GiB'),
    ('--iops', (*_DATABASES, 'iops'), 'N', 'operations per second that each needs'),
    ('--iops-per-gib', (*_DATABASES, 'iops_per_gib'), 'N', 'the same for each GiB'),
    ('--growth', ('growth_percent',), 'PERCENT', 'growth of data and IOPS each year'),
    ('--years', ('years',), 'N', 'years of growth'),
    ('--write-share', ('write_share',), 'SHARE', 'share of writes, from 0 to 1'),
    ('--optimised-for', (*_CLUSTER, 'optimised_for'), 'KIND', 'iops, throughput or capacity'),
    ('--copies', (*_CLUSTER, 'copies'), 'N', 'copies of the data'),
    ('--erasure', (*_CLUSTER, 'erasure'), 'K+M', 'an erasure code, such as 4+2 or 8+3'),
    ('--failure-domain', (*_CLUSTER, 'failure_domain'), 'KIND', 'host or rack'),
    ('--nodes-per-rack', (*_CLUSTER, 'nodes_per_rack'), 'N', 'servers in a rack'),
    ('--recovery-hours', (*_CLUSTER, 'recovery', 'hours'), 'H', 'wanted recovery time'),
    ('--device-class', (*_DEVICE, 'class'), 'CLASS', 'nvme, ssd or hdd'),
    ('--device-size', (*_DEVICE, 'size'), 'SIZE', 'size of a device, such as 3.84TB'),
    ('--device-iops', (*_DEVICE, 'iops'), 'N', 'operations per second of a device'),
    (
        '--device-throughput',
        (*_DEVICE, 'throughput'),
        'SIZE',
        'its bytes per second, such as 2GB',
    ),
    ('--nodes', (*_CLUSTER, 'nodes'), 'N', 'servers, instead of computing them'),
    (
        '--devices-per-node',
        (*_CLUSTER, 'devices_per_node'),
        'N',
        'devices of a server, likewise',
    ),
)


class Size(base.Report):
    """Plan a cluster for a fleet of databases, with its costs and what a failure leaves.

    The rules are those of published reference architectures; each value names the rule that bound
    it. Nothing is asked or changed but the file of --svg.
    """

    examples = _EXAMPLES
    exit_codes = _EXIT_CODES

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser, with an option for each value that is often changed."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--fleet', metavar='PATH', help='the fleet file')
        values = parser.add_argument_group(
            'values of the fleet', 'each replaces the value of the file; together they need none'
        )
        for name, path, metavar, meaning in _OPTIONS:
            values.add_argument(name, dest='.'.join(map(str, path)), metavar=metavar, help=meaning)
        parser.add_argument(
            '--prices', metavar='PATH', help='a price table instead of the shipped one'
        )
        parser.add_argument(
            '--explain', action='store_true', help='show all rules and where they are from'
        )
        parser.add_argument(
            '--fail',
            action='append',
            default=[],
            metavar='WHAT[:N]',
            help='what remains when a host or a rack is lost: host, rack, or several such as '
            'host:2; may be repeated, all are lost at once; CRUSH is asked, too (crushtool)',
        )
        parser.add_argument(
            '--crush',
            action='store_true',
            help='ask CRUSH how evenly it spreads the data, without a failure (crushtool)',
        )
        parser.add_argument(
            '--svg', metavar='PATH', help='write a picture of the cluster and its limits'
        )
        return parser

    def make_report(self, parsed_args: argparse.Namespace) -> tuple[Mapping[str, Any], str]:
        """Return the plan as a document and as text; write the picture."""
        found = _report(parsed_args)
        if found.problems:
            self.exit_status = base.ExitStatus.DIFFERS
        if parsed_args.svg:
            _write_picture(parsed_args.svg, found)
        return report.document(found), report.text(found, parsed_args.explain)


def _report(parsed_args: argparse.Namespace) -> report.Report:
    failures = [topology.parse_failure(one) for one in parsed_args.fail]
    prices = costs.load(parsed_args.prices)
    cluster = plan.make(fleet_file.load(parsed_args.fleet, _options(parsed_args)))
    comparisons = costs.compare(cluster, prices)
    outcome = failure.simulate(cluster, failures) if failures else None
    check = None
    if failures or parsed_args.crush:
        lost = outcome.lost_nodes if outcome else frozenset()
        check = failure.check(cluster, lost, crush.Crushtool())
    return report.Report(cluster, comparisons, ' and '.join(parsed_args.fail), outcome, check)


def _options(parsed_args: argparse.Namespace) -> dict[ValuePath, tuple[str, Any]]:
    """Return the values that options give, by the path of the value that they replace."""
    found = {}
    for name, path, _, _ in _OPTIONS:
        given = getattr(parsed_args, '.'.join(map(str, path)))
        if given is not None:
            found[path] = (name, _value(name, given))
    return found


def _value(name: str, given: str) -> Any:
    """Return the value of an option as the fleet file would have it."""
    if name == '--erasure':
        k, plus, m = given.partition('+')
        if not (plus and k.isdecimal() and m.isdecimal()):
            raise exceptions.InvalidFleetError(f'{name} {given}: must be K+M, such as 4+2')
        return {'k': int(k), 'm': int(m)}
    try:
        return yaml_file.read_value(given)
    except yaml.YAMLError as error:
        raise exceptions.InvalidFleetError(f'{name} {given}: is not a value') from error


def _write_picture(path: str, found: report.Report) -> None:
    try:
        from trove_ceph.sizing import picture
    except ModuleNotFoundError as error:
        raise exceptions.PictureError(
            f'--svg needs the Python package {error.name}: install trove-ceph[sizing]'
        ) from error
    drawn = picture.draw(found)
    try:
        Path(path).write_text(drawn, encoding='utf-8')
    except OSError as error:
        raise exceptions.PictureError(f'{path}: cannot be written: {error}') from error
