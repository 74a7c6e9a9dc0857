# SPDX-License-Identifier: Apache-2.0
"""Print a configuration file as Nova reads it, as JSON: run ``python -m`` with its path.

A process of its own, since Nova and Trove register different options of the same names.
"""

import json
import sys

from nova.conf import compute, libvirt
from nova.virt import hardware
from oslo_config import cfg


def read(path):
    """Return the values of all keys of a file, by section; a key that Nova lacks raises an error.

    The processors of guests are a sorted list.
    """
    conf = cfg.ConfigOpts()
    compute.register_opts(conf)
    libvirt.register_opts(conf)
    conf([], project='nova', default_config_files=[path])
    sections = {}
    cfg.ConfigParser(path, sections).parse()
    found = {
        section: {
            key: getattr(conf if section == 'DEFAULT' else conf[section], key) for key in keys
        }
        for section, keys in sections.items()
    }
    found['compute']['cpu_shared_set'] = sorted(
        hardware.parse_cpu_spec(conf.compute.cpu_shared_set)
    )
    return found


if __name__ == '__main__':
    print(json.dumps(read(sys.argv[1])))
