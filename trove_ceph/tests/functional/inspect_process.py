# SPDX-License-Identifier: Apache-2.0
"""An inspection in a process of its own, to be killed.

Says each phase that it begins; ``checking`` does not end, so that it can be killed there.
"""

import sys
import threading
from pathlib import Path

from trove_ceph.storage import job, model
from trove_ceph.tests.functional import inspecting


def main(conf, directory, pool, image, snapshot, check_id):
    def note(phase, *_):
        print(phase, flush=True)
        if phase == 'checking':
            threading.Event().wait()

    work = job.Inspect(model.ImageRef(pool, image).snapshot(snapshot), check_id, inspecting.VERSION)
    inspecting.inspector(conf, Path(directory)).inspect(work, model.ImageOptions(), note=note)


if __name__ == '__main__':
    main(*sys.argv[1:])
