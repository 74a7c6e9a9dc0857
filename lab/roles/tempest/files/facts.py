# SPDX-License-Identifier: Apache-2.0
"""Print as JSON the ids that Tempest's configuration needs: facts.py FLAVOR..."""

import json
import sys

import openstack


def main():
    cloud = openstack.connect(load_yaml_config=False)
    flavors = {flavor.name: flavor.id for flavor in cloud.compute.flavors()}
    image = next(i for i in cloud.image.images() if (i.name or '').startswith('trove-guest-'))
    facts = {
        'flavors': {name: flavors[name] for name in sys.argv[1:]},
        'guest_image': image.id,
        'public_network': cloud.network.find_network('public', ignore_missing=False).id,
    }
    print(json.dumps(facts))


if __name__ == '__main__':
    main()
