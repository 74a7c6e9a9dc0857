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
        existing = {role.name for role in self._sdk.identity.roles()}
        for name in names:
            if name not in existing:
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
        for spec in users:
            user = identity.find_user(spec['name'])
            project = identity.find_project(spec['project'], ignore_missing=False)
            if not user:
                user = identity.create_user(
                    name=spec['name'],
                    password=spec['password'],
                    domain_id='default',
                    default_project_id=project.id,
                )
                self.made.append(f'user {spec["name"]}')
            for role in spec['roles']:
                # Assigning a role again changes nothing.
                identity.assign_project_role_to_user(project, user, roles[role])

    def ensure_services(self, services):
        identity = self._sdk.identity
        existing = {service.type: service for service in identity.services()}
        endpoints = {(e.service_id, e.interface): e for e in identity.endpoints()}
        for spec in services:
            service = existing.get(spec['type']) or identity.create_service(
                type=spec['type'], name=spec['name']
            )
            for interface in ('public', 'internal', 'admin'):
                endpoint = endpoints.get((service.id, interface))
                self._ensure_endpoint(service, interface, endpoint, spec['url'])

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
        existing = {flavor.name for flavor in self._sdk.compute.flavors()}
        for spec in flavors:
            if spec['name'] not in existing:
                self._sdk.compute.create_flavor(**spec)
                self.made.append(f'flavor {spec["name"]}')

    def ensure_networks(self, networks):
        for spec in networks:
            network = self._sdk.network.find_network(spec['name'])
            if not network:
                network = self._sdk.network.create_network(**self._network_body(spec))
                self.made.append(f'network {spec["name"]}')
            self.ids['networks'][spec['name']] = network.id
            if not network.subnet_ids:
                self._sdk.network.create_subnet(**self._subnet_body(spec, network))
                self.made.append(f'subnet of {spec["name"]}')

    def _network_body(self, spec):
        body = {
            'name': spec['name'],
            'is_shared': spec.get('shared', False),
            'is_router_external': spec.get('external', False),
            'project_id': self._project_id(spec),
        }
        if spec.get('physical_network'):
            body |= {
                'provider_network_type': 'flat',
                'provider_physical_network': spec['physical_network'],
            }
        return body

    def _subnet_body(self, spec, network):
        body = {
            'name': f'{spec["name"]}-subnet',
            'network_id': network.id,
            'project_id': network.project_id,
            'ip_version': 4,
            'cidr': spec['cidr'],
            'dns_nameservers': [],
            'is_dhcp_enabled': spec.get('dhcp', True),
        }
        if 'gateway' in spec:
            body['gateway_ip'] = spec['gateway']
        if spec.get('reserved'):
            body['allocation_pools'] = _pools(spec['cidr'], spec['reserved'])
        return body

    def ensure_routers(self, routers):
        sdk = self._sdk.network
        for spec in routers:
            router = sdk.find_router(spec['name'])
            if not router:
                external = sdk.find_network(spec['external'], ignore_missing=False)
                router = sdk.create_router(
                    name=spec['name'],
                    project_id=self._project_id(spec),
                    external_gateway_info={'network_id': external.id},
                )
                self.made.append(f'router {spec["name"]}')
            attached = {
                ip['subnet_id'] for port in sdk.ports(device_id=router.id) for ip in port.fixed_ips
            }
            for name in spec['networks']:
                network = sdk.find_network(name, ignore_missing=False)
                for subnet_id in set(network.subnet_ids) - attached:
                    sdk.add_interface_to_router(router, subnet_id=subnet_id)
                    self.made.append(f'{name} on router {spec["name"]}')

    def ensure_security_groups(self, groups):
        sdk = self._sdk.network
        for spec in groups:
            project_id = self._project_id(spec)
            group = next(iter(sdk.security_groups(name=spec['name'], project_id=project_id)), None)
            if not group:
                group = sdk.create_security_group(name=spec['name'], project_id=project_id)
                self.made.append(f'security group {spec["name"]}')
            self.ids['security_groups'][spec['name']] = group.id
            self._ensure_rules(group, spec['ports'])

    def _ensure_rules(self, group, ports):
        sdk = self._sdk.network
        existing = {
            (rule.protocol, rule.port_range_min)
            for rule in sdk.security_group_rules(security_group_id=group.id, direction='ingress')
        }
        rules = [('icmp', None)] + [('tcp', port) for port in ports]
        for protocol, port in rules:
            if (protocol, port) not in existing:
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
        for spec in keypairs:
            # A key pair belongs to the user who creates it.
            sdk = self._connect(
                self._auth
                | {
                    'OS_USERNAME': spec['user'],
                    'OS_PROJECT_NAME': spec['project'],
                    'OS_PASSWORD': spec['password'],
                }
            )
            if not sdk.compute.find_keypair(spec['name']):
                sdk.compute.create_keypair(name=spec['name'], public_key=spec['public_key'])
                self.made.append(f'key pair {spec["name"]}')

    def _project_id(self, spec):
        name = spec.get('project', self._auth['OS_PROJECT_NAME'])
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
