# SPDX-License-Identifier: Apache-2.0
"""Print configuration files as Nova reads them, each as a line of JSON: run it with ``python -m``.

Their paths are lines of standard input. A process of its own, since Nova and Trove register
different options of the same names; one for many files, since the import of Nova takes seconds.
"""

import json
import sys

from nova.conf import compute, libvirt, scheduler
from nova.virt import hardware
from oslo_config import cfg


def read(path):
    """Return the values of all keys of a file, by section; a key that Nova lacks raises an error.

    The processors of guests are a sorted list.
    """
    conf = cfg.ConfigOpts()
    compute.register_opts(conf)
    libvirt.register_opts(conf)
    scheduler.register_opts(conf)
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
    for line in sys.stdin:
        print(json.dumps(read(line.rstrip('\n'))), flush=True)
