# SPDX-License-Identifier: Apache-2.0
from neutronclient.common import exceptions as neutron_exceptions
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.guestagent.waiting_messages import Interface, Route
from trove_ceph.trove_adapter import neutron


class Client:
    """A client of Neutron with one port in two subnets."""

    def __init__(self):
        self.network = {'mtu': 1400}
        self.error = None
        self.subnets = {
            'four': {
                'cidr': '192.0.2.0/26',
                'ip_version': 4,
                'gateway_ip': '192.0.2.1',
                'host_routes': [{'destination': '10.1.0.0/16', 'nexthop': '192.0.2.9', 'x': 1}],
                'dns_nameservers': ['192.0.2.53'],
            },
            'six': {'cidr': '2001:db8::/64', 'ip_version': 6, 'gateway_ip': '2001:db8::1'},
        }
        self.port = {
            'mac_address': 'fa:16:3e:00:00:01',
            'network_id': 'network',
            'fixed_ips': [
                {'subnet_id': 'four', 'ip_address': '192.0.2.5'},
                {'subnet_id': 'six', 'ip_address': '2001:db8::5'},
            ],
        }

    def show_port(self, _port_id):
        if self.error:
            raise self.error
        return {'port': self.port}

    def show_network(self, _network_id):
        return {'network': self.network}

    def show_subnet(self, subnet_id):
        return {'subnet': self.subnets[subnet_id]}


class NeutronTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.client = Client()
        self.neutron = neutron.Neutron(self.client)

    def test_finds_an_interface(self):
        self.assertEqual(
            Interface(
                mac='fa:16:3e:00:00:01',
                mtu=1400,
                addresses=('192.0.2.5/26', '2001:db8::5/64'),
                gateway='192.0.2.1',
                routes=(Route('10.1.0.0/16', '192.0.2.9'),),
                nameservers=('192.0.2.53',),
            ),
            self.neutron.find_interface('port'),
        )

    def test_network_without_a_gateway_and_an_mtu(self):
        self.client.network = {}
        self.client.subnets['four']['gateway_ip'] = None
        found = self.neutron.find_interface('port')
        self.assertEqual((None, None), (found.mtu, found.gateway))

    def test_reports_a_refusal_by_neutron(self):
        self.client.error = neutron_exceptions.PortNotFoundClient('it is gone')
        error = self.assertRaises(
            exceptions.ServiceUnavailableError, self.neutron.find_interface, 'port'
        )
        self.assertIn('port port: Neutron failed at showing it', str(error))
