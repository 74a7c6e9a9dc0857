# SPDX-License-Identifier: Apache-2.0
"""The files of systemd-networkd, and the wait for an interface."""

import configparser
import socket
from unittest import mock

import fixtures
import psutil
from oslotest import base

from trove_ceph import exceptions, waiting
from trove_ceph.guestagent import network_interface
from trove_ceph.guestagent.waiting_messages import Interface, Route

MAC = 'fa:16:3e:00:00:01'


def interface(**changes):
    known = {'mac': MAC, 'mtu': 1442, 'addresses': ('10.0.0.5/24',), 'gateway': '10.0.0.1'}
    return Interface(**known | changes)


def sections(text):
    """Return (name, settings) of the sections, of which several have the same name."""
    found = []
    for block in text.split('\n\n'):
        parser = configparser.ConfigParser(interpolation=None)
        parser.optionxform = str
        parser.read_string(block)
        name = parser.sections()[0]
        found.append((name, dict(parser[name])))
    return found


class RenderTest(base.BaseTestCase):
    def named(self, name, text):
        return [settings for found, settings in sections(text) if found == name]

    def test_one_address(self):
        text = network_interface.render(interface(), 0)

        self.assertEqual([{'MACAddress': MAC, 'Type': 'ether'}], self.named('Match', text))
        self.assertEqual([{'MTUBytes': '1442'}], self.named('Link', text))
        self.assertEqual(
            [{'Address': '10.0.0.5/24', 'RouteMetric': '20480'}], self.named('Address', text)
        )

    def test_no_route_of_a_tenant_precedes_those_of_the_guest(self):
        routes = (
            Route('192.0.2.0/24', '10.0.0.9'),
            Route('0.0.0.0/0', '10.0.0.1'),
            Route('::/0', 'fd00::1'),
        )
        addresses = ('10.0.0.5/24', 'fd00::5/64')
        text = network_interface.render(interface(addresses=addresses, routes=routes), 0)

        found = self.named('Route', text)
        in_main = [one for one in found if 'Table' not in one]
        self.assertEqual(['10.0.0.1', 'fd00::1'], [one['Gateway'] for one in in_main])
        for one in in_main:
            self.assertEqual('20480', one['Metric'])
            self.assertNotIn('Destination', one)
        own = [(one.get('Destination'), one['Gateway']) for one in found if 'Table' in one]
        expected = [(None, '10.0.0.1'), (None, 'fd00::1'), ('192.0.2.0/24', '10.0.0.9')]
        self.assertEqual(sorted(expected, key=str), sorted(own, key=str))

    def test_rules_ask_the_main_table_first_but_for_its_default_route(self):
        text = network_interface.render(interface(), 0)

        for selector in ({'From': '10.0.0.5'}, {'IncomingInterface': 'docker0'}):
            found = [
                (one['Table'], one.get('SuppressPrefixLength'))
                for one in sorted(
                    self.named('RoutingPolicyRule', text), key=lambda one: int(one['Priority'])
                )
                if selector.items() <= one.items()
            ]
            self.assertEqual([('main', '0'), ('20480', None)], found)

    def test_interfaces_have_tables_of_their_own(self):
        seen = []
        for index in range(3):
            rules = self.named('RoutingPolicyRule', network_interface.render(interface(), index))
            seen += [(one['Table'], one['Priority']) for one in rules]
        self.assertEqual(len(seen), len(set(seen)))
        priorities = [int(priority) for _, priority in seen]
        self.assertEqual(sorted(priorities), priorities)

    def test_announced_routes_are_in_the_own_table(self):
        announced = {'RouteTable': '20481', 'UseAutonomousPrefix': 'no', 'UseDNS': 'no'}
        both = interface(addresses=('10.0.0.5/24', 'fd00::5/64'))
        for one, accept, expected in ((interface(), 'no', []), (both, 'yes', [announced])):
            text = network_interface.render(one, 1)
            (network,) = self.named('Network', text)
            self.assertEqual(accept, network['IPv6AcceptRA'])
            found = self.named('IPv6AcceptRA', text)
            self.assertEqual(
                expected, [{key: one[key] for key in announced if key in one} for one in found]
            )

    def test_the_predecessor_of_a_port_does_not_take_its_addresses_away(self):
        """The kernel would never use an address that another machine answers for."""
        text = network_interface.render(interface(addresses=('10.0.0.5/24', 'fd00::5/64')), 0)

        found = {one['Address']: one for one in self.named('Address', text)}
        self.assertEqual('none', found['fd00::5/64']['DuplicateAddressDetection'])
        self.assertNotIn('DuplicateAddressDetection', found['10.0.0.5/24'])
        # The link-local one.
        (network,) = self.named('Network', text)
        self.assertEqual('0', network['IPv6DuplicateAddressDetection'])

    def test_without_gateway_and_mtu(self):
        text = network_interface.render(interface(gateway=None, mtu=None), 0)

        self.assertEqual([], self.named('Route', text) + self.named('Link', text))

    def test_the_name_servers_of_a_tenant_are_not_used(self):
        text = network_interface.render(interface(nameservers=('192.0.2.53',)), 0)

        self.assertNotIn('192.0.2.53', text)


class ObstacleTest(base.BaseTestCase):
    def test_networkd_must_run(self):
        run = 'trove_ceph.host.commands.run'
        with mock.patch(run, return_value=''):
            self.assertIsNone(network_interface.find_obstacle())
        with mock.patch(run, side_effect=exceptions.StorageCommandError('exit code 3')):
            self.assertIn('systemd-networkd', network_interface.find_obstacle())


class WaitTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.found = {'lo': [self.address(socket.AF_INET, '127.0.0.1')]}
        self.appear = {}
        self.useFixture(fixtures.MonkeyPatch('psutil.net_if_addrs', lambda: self.found))

    def address(self, family, text):
        return mock.Mock(family=family, address=text)

    def sleep(self, seconds):
        self.now += seconds
        self.found.update(self.appear.pop(self.now, {}))

    def wait(self, *interfaces):
        deadline = waiting.Deadline(60, lambda: self.now, self.sleep)
        network_interface.wait_until_ready(interfaces, deadline)

    def attached(self, *addresses):
        return {
            'ens7': [
                self.address(psutil.AF_LINK, MAC),
                self.address(socket.AF_INET6, 'fe80::1%ens7'),
                *(self.address(socket.AF_INET, one) for one in addresses),
            ]
        }

    def test_attached_and_configured(self):
        self.appear = {5.0: self.attached(), 8.0: self.attached('10.0.0.5')}

        self.wait(interface())

        self.assertEqual(8.0, self.now)

    def test_without_addresses_it_need_only_be_attached(self):
        self.appear = {5.0: self.attached()}

        self.wait(interface(addresses=()))

        self.assertEqual(5.0, self.now)

    def test_never_attached(self):
        error = self.assertRaises(exceptions.InterfaceNotReadyError, self.wait, interface())

        self.assertIn(MAC, str(error))
        self.assertEqual(60.0, self.now)

    def test_never_configured(self):
        self.appear = {5.0: self.attached('10.0.0.6')}

        error = self.assertRaises(exceptions.InterfaceNotReadyError, self.wait, interface())

        self.assertIn('10.0.0.5', str(error))
