# SPDX-License-Identifier: Apache-2.0
"""An inspection in a process of its own, to be killed.

It prints each phase at its beginning; ``checking`` does not end, so that it can be killed there.
"""

import sys
import threading
from pathlib import Path

from trove_ceph.storage import image_types, tasks
from trove_ceph.tests.functional import inspecting


def main(conf, directory, mode, pool, image, snapshot, check_id):
    def report_phase(phase, *_):
        print(phase, flush=True)
        if phase == 'checking':
            threading.Event().wait()

    work = tasks.InspectTask(
        image_types.ImageRef(pool, image).snapshot(snapshot), check_id, inspecting.VERSION
    )
    inspector = inspecting.inspector(conf, Path(directory), mode=mode)
    inspector.inspect(work, image_types.ImageOptions(), note=report_phase)


if __name__ == '__main__':
    main(*sys.argv[1:])
