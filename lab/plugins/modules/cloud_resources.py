#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: ensure that a cloud contains the described resources."""

import ipaddress

import ansible.module_utils.basic
import openstack

DOCUMENTATION = """
module: cloud_resources
short_description: ensure the resources of a cloud exist
description:
  - Creates missing resources and changes nothing else. Run it with the interpreter
    of the environment that has openstacksdk.
options:
  auth:
    description: the OS_* variables of an administrator
    required: true
  resources:
    description: >-
      roles, projects (names); users (name, password, project, roles); services
      (type, name, url); flavors (name, ram, vcpus, disk); networks (name, cidr,
      and optionally gateway, dhcp, physical_network, external, shared, project,
      reserved: addresses excluded from allocation); routers (name, project, external,
      networks); security_groups (name, project, ports); keypairs (name, public_key, user,
      project, password)
    required: true
returns:
  made: the created resources
  ids: the ids of the networks and security groups by kind and name
"""


class Cloud:
    """The cloud, accessed as an administrator; ``made`` lists the created resources."""

    def __init__(self, auth):
        self._auth = auth
        self.made = []
        self.ids = {'networks': {}, 'security_groups': {}}
        self._sdk = self._connect(auth)

    def ensure_roles(self, names):
        have = {role.name for role in self._sdk.identity.roles()}
        for name in names:
            if name not in have:
                self._sdk.identity.create_role(name=name)
                self.made.append(f'role {name}')

    def ensure_projects(self, names):
        for name in names:
            if not self._sdk.identity.find_project(name):
                self._sdk.identity.create_project(name=name, domain_id='default')
                self.made.append(f'project {name}')

    def ensure_users(self, users):
        identity = self._sdk.identity
        roles = {role.name: role for role in identity.roles()}
        for wanted in users:
            user = identity.find_user(wanted['name'])
            project = identity.find_project(wanted['project'], ignore_missing=False)
            if not user:
                user = identity.create_user(
                    name=wanted['name'],
                    password=wanted['password'],
                    domain_id='default',
                    default_project_id=project.id,
                )
                self.made.append(f'user {wanted["name"]}')
            for role in wanted['roles']:
                # Assigning a role again changes nothing.
                identity.assign_project_role_to_user(project, user, roles[role])

    def ensure_services(self, services):
        identity = self._sdk.identity
        have = {service.type: service for service in identity.services()}
        endpoints = {(e.service_id, e.interface): e for e in identity.endpoints()}
        for wanted in services:
            service = have.get(wanted['type']) or identity.create_service(
                type=wanted['type'], name=wanted['name']
            )
            for interface in ('public', 'internal', 'admin'):
                endpoint = endpoints.get((service.id, interface))
                self._ensure_endpoint(service, interface, endpoint, wanted['url'])

    def _ensure_endpoint(self, service, interface, endpoint, url):
        identity = self._sdk.identity
        if not endpoint:
            identity.create_endpoint(
                service_id=service.id,
                interface=interface,
                url=url,
                region_id=self._auth['OS_REGION_NAME'],
            )
        elif endpoint.url != url:
            identity.update_endpoint(endpoint, url=url)
        else:
            return
        self.made.append(f'{interface} endpoint of {service.type}')

    def ensure_flavors(self, flavors):
        have = {flavor.name for flavor in self._sdk.compute.flavors()}
        for wanted in flavors:
            if wanted['name'] not in have:
                self._sdk.compute.create_flavor(**wanted)
                self.made.append(f'flavor {wanted["name"]}')

    def ensure_networks(self, networks):
        for wanted in networks:
            network = self._sdk.network.find_network(wanted['name'])
            if not network:
                network = self._sdk.network.create_network(**self._network_body(wanted))
                self.made.append(f'network {wanted["name"]}')
            self.ids['networks'][wanted['name']] = network.id
            if not network.subnet_ids:
                self._sdk.network.create_subnet(**self._subnet_body(wanted, network))
                self.made.append(f'subnet of {wanted["name"]}')

    def _network_body(self, wanted):
        body = {
            'name': wanted['name'],
            'is_shared': wanted.get('shared', False),
            'is_router_external': wanted.get('external', False),
            'project_id': self._project_id(wanted),
        }
        if wanted.get('physical_network'):
            body |= {
                'provider_network_type': 'flat',
                'provider_physical_network': wanted['physical_network'],
            }
        return body

    def _subnet_body(self, wanted, network):
        body = {
            'name': f'{wanted["name"]}-subnet',
            'network_id': network.id,
            'project_id': network.project_id,
            'ip_version': 4,
            'cidr': wanted['cidr'],
            'dns_nameservers': [],
            'is_dhcp_enabled': wanted.get('dhcp', True),
        }
        if 'gateway' in wanted:
            body['gateway_ip'] = wanted['gateway']
        if wanted.get('reserved'):
            body['allocation_pools'] = _pools(wanted['cidr'], wanted['reserved'])
        return body

    def ensure_routers(self, routers):
        sdk = self._sdk.network
        for wanted in routers:
            router = sdk.find_router(wanted['name'])
            if not router:
                external = sdk.find_network(wanted['external'], ignore_missing=False)
                router = sdk.create_router(
                    name=wanted['name'],
                    project_id=self._project_id(wanted),
                    external_gateway_info={'network_id': external.id},
                )
                self.made.append(f'router {wanted["name"]}')
            attached = {
                ip['subnet_id'] for port in sdk.ports(device_id=router.id) for ip in port.fixed_ips
            }
            for name in wanted['networks']:
                network = sdk.find_network(name, ignore_missing=False)
                for subnet_id in set(network.subnet_ids) - attached:
                    sdk.add_interface_to_router(router, subnet_id=subnet_id)
                    self.made.append(f'{name} on router {wanted["name"]}')

    def ensure_security_groups(self, groups):
        sdk = self._sdk.network
        for wanted in groups:
            project_id = self._project_id(wanted)
            group = next(
                iter(sdk.security_groups(name=wanted['name'], project_id=project_id)), None
            )
            if not group:
                group = sdk.create_security_group(name=wanted['name'], project_id=project_id)
                self.made.append(f'security group {wanted["name"]}')
            self.ids['security_groups'][wanted['name']] = group.id
            self._ensure_rules(group, wanted['ports'])

    def _ensure_rules(self, group, ports):
        sdk = self._sdk.network
        have = {
            (rule.protocol, rule.port_range_min)
            for rule in sdk.security_group_rules(security_group_id=group.id, direction='ingress')
        }
        wanted = [('icmp', None)] + [('tcp', port) for port in ports]
        for protocol, port in wanted:
            if (protocol, port) not in have:
                sdk.create_security_group_rule(
                    security_group_id=group.id,
                    direction='ingress',
                    protocol=protocol,
                    port_range_min=port,
                    port_range_max=port,
                    project_id=group.project_id,
                )
                self.made.append(f'{protocol} {port} in {group.name}')

    def ensure_keypairs(self, keypairs):
        for wanted in keypairs:
            # A key pair belongs to the user who creates it.
            sdk = self._connect(
                self._auth
                | {
                    'OS_USERNAME': wanted['user'],
                    'OS_PROJECT_NAME': wanted['project'],
                    'OS_PASSWORD': wanted['password'],
                }
            )
            if not sdk.compute.find_keypair(wanted['name']):
                sdk.compute.create_keypair(name=wanted['name'], public_key=wanted['public_key'])
                self.made.append(f'key pair {wanted["name"]}')

    def _project_id(self, wanted):
        name = wanted.get('project', self._auth['OS_PROJECT_NAME'])
        return self._sdk.identity.find_project(name, ignore_missing=False).id

    @staticmethod
    def _connect(auth):
        return openstack.connect(
            load_yaml_config=False,
            load_envvars=False,
            region_name=auth['OS_REGION_NAME'],
            auth={
                'auth_url': auth['OS_AUTH_URL'],
                'username': auth['OS_USERNAME'],
                'password': auth['OS_PASSWORD'],
                'project_name': auth['OS_PROJECT_NAME'],
                'user_domain_id': auth['OS_USER_DOMAIN_ID'],
                'project_domain_id': auth['OS_PROJECT_DOMAIN_ID'],
            },
        )


def _pools(cidr, reserved):
    hosts = list(ipaddress.IPv4Network(cidr).hosts())
    taken = sorted({ipaddress.IPv4Address(a) for a in reserved} & set(hosts))
    pools, start = [], hosts[0]
    for address in taken + [hosts[-1] + 1]:
        if start < address:
            pools.append({'start': str(start), 'end': str(address - 1)})
        start = address + 1
    return pools


AUTH = {
    name: {'type': 'str', 'required': True}
    for name in (
        'OS_AUTH_URL',
        'OS_USERNAME',
        'OS_PROJECT_NAME',
        'OS_REGION_NAME',
        'OS_USER_DOMAIN_ID',
        'OS_PROJECT_DOMAIN_ID',
    )
} | {
    'OS_IDENTITY_API_VERSION': {'type': 'str'},
    'OS_PASSWORD': {'type': 'str', 'required': True, 'no_log': True},
}
# Each kind after those it refers to.
KINDS = (
    'roles',
    'projects',
    'users',
    'services',
    'flavors',
    'networks',
    'routers',
    'security_groups',
    'keypairs',
)


def main():
    module = ansible.module_utils.basic.AnsibleModule(
        argument_spec={
            'auth': {'type': 'dict', 'required': True, 'options': AUTH},
            'resources': {'type': 'dict', 'required': True},
        }
    )
    resources = module.params['resources']
    # Only the passwords: hiding the whole of auth would blot out every part
    # of an id that happens to equal one of its values.
    module.no_log_values.update(
        item['password'] for kind in ('users', 'keypairs') for item in resources.get(kind, [])
    )
    unknown = set(resources) - set(KINDS)
    if unknown:
        module.fail_json(msg=f'no such kind of resource: {sorted(unknown)}')
    cloud = Cloud(module.params['auth'])
    try:
        for kind in KINDS:
            if kind in resources:
                getattr(cloud, f'ensure_{kind}')(resources[kind])
    except openstack.exceptions.SDKException as e:
        module.fail_json(msg=f'{type(e).__name__}: {e}', made=cloud.made)
    module.exit_json(changed=bool(cloud.made), made=cloud.made, ids=cloud.ids)


if __name__ == '__main__':
    main()
