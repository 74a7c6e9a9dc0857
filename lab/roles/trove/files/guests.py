# SPDX-License-Identifier: Apache-2.0
"""Print the addresses of the guests of instances in a network, a line each: guests.py NETWORK."""

import sys

import openstack


def main():
    cloud = openstack.connect(load_yaml_config=False)
    for server in cloud.compute.servers(all_projects=True, status='ACTIVE'):
        # Warm guests have no instance yet.
        if server.name.startswith('trove-guest-'):
            continue
        for address in server.addresses.get(sys.argv[1], ()):
            print(address['addr'])


if __name__ == '__main__':
    main()
