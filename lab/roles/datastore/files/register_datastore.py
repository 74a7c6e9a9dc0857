# SPDX-License-Identifier: Apache-2.0
"""Offer a guest image as a datastore version of Trove."""

import argparse
import os
import subprocess
import sys

import openstack

from trove_ceph.guestagent import waiting_messages
from trove_ceph.mysql import tuning

# The guest agent's manager. Every later update of the version must repeat both:
# Trove resets omitted options to its defaults.
REGISTRY_EXT = 'trove_ceph.guestagent.manager.Manager'
REPL_STRATEGY = 'trove_ceph.guestagent.replication.CloneReplication'
IMAGE_PROPERTIES = {
    'hw_disk_bus': 'virtio',
    'hw_vif_model': 'virtio',
    'hw_rng_model': 'virtio',
    # The guest reads its config drive from a CD-ROM.
    'hw_cdrom_bus': 'scsi',
    'hw_scsi_model': 'virtio-scsi',
}
# Of the agent in the image, which is built from the same tree.
OUR_PROPERTIES = {'trove_ceph_agent': waiting_messages.VERSION}
PREFIX = 'trove-guest-'
#: The datastore of stock Trove's guest image, which needs none of our settings.
STOCK, STOCK_PREFIX = 'mysql-stock', 'trove-stock-guest-'


def main():
    args = _parser().parse_args()
    cloud = openstack.connect(load_yaml_config=False)
    prefix = STOCK_PREFIX if args.stock else PREFIX
    own = {} if args.stock else OUR_PROPERTIES
    image = upload(cloud, args.image, prefix + args.digest, IMAGE_PROPERTIES | own)
    register(args, image.id)
    allow_flavors(cloud, args)
    remove_others(cloud, image.id, prefix)


def upload(cloud, path, name, properties):
    """Return the active image of this name; upload it if there is none."""
    for image in cloud.image.images(name=name):
        if image.status == 'active':
            return image
        cloud.image.delete_image(image)  # an upload that was cut off
    return cloud.create_image(
        name,
        filename=path,
        disk_format='qcow2',
        container_format='bare',
        visibility='private',
        wait=True,
        timeout=600,
        **properties,
    )


def register(args, image_id):
    """Make the image the datastore version, the default, and load its rules."""
    name, version = datastore(args), args.mysql_version
    trove_manage(args, 'datastore_update', name, '')
    strategies = ('--registry-ext', REGISTRY_EXT, '--repl-strategy', REPL_STRATEGY)
    trove_manage(
        *(args, 'datastore_version_update', name, version, 'mysql', image_id, '', '1'),
        *('--version', version),
        *(() if args.stock else strategies),
    )
    trove_manage(args, 'datastore_update', name, version)
    trove_manage(args, 'db_load_datastore_config_parameters', name, version, args.validation_rules)


def allow_flavors(cloud, args):
    """Have the API refuse the flavors that are too small for MySQL."""
    large = [
        flavor.id for flavor in cloud.compute.flavors() if flavor.ram >= tuning.smallest_ram_mib()
    ]
    for flavor_id in large:
        # Adding a flavor again prints a message and changes nothing.
        trove_manage(
            *(args, 'datastore_version_flavor_add', datastore(args)),
            *(args.mysql_version, flavor_id),
        )


def datastore(args):
    return STOCK if args.stock else 'mysql'


def trove_manage(args, *arguments):
    program = os.path.join(os.path.dirname(sys.executable), 'trove-manage')
    subprocess.run([program, '--config-file', args.trove_conf, *arguments], check=True)


def remove_others(cloud, image_id, prefix):
    """Delete the guest images that this image replaces."""
    for image in cloud.image.images(owner=cloud.current_project_id):
        # An image need not have a name.
        if (image.name or '').startswith(prefix) and image.id != image_id:
            cloud.image.delete_image(image)


def _parser():
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ('image', 'digest', 'mysql-version', 'trove-conf', 'validation-rules'):
        parser.add_argument(f'--{option}', required=True)
    parser.add_argument('--stock', action='store_true', help="it has Trove's own agent")
    return parser


if __name__ == '__main__':
    main()
