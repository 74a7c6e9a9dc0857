# SPDX-License-Identifier: Apache-2.0
"""Write the report of a results folder as HTML page, as Markdown, and as JSON data."""

import json
from pathlib import Path

from trove_ceph_bench import results


def prepare() -> None:
    """Import the plotting packages, so that a missing one fails before hours of measurements.

    :raises ModuleNotFoundError: a package is not installed
    """
    # The import is slow, and other commands do not need it.
    from trove_ceph_bench.report import page  # noqa: F401


def write(store: results.Store, baseline: results.Store | None = None) -> Path:
    """Write the report to the folder and return the path of its page.

    Drawing the plots takes some seconds. Existing files are replaced.

    :param baseline: another folder to compare with
    :raises ResultsFormatError: a folder cannot be used
    """
    # Slow, as in prepare().
    from trove_ceph_bench.report import model, page

    found = model.build(store, baseline)
    directory = store.path / results.REPORT_DIRECTORY
    directory.mkdir(exist_ok=True)
    text = json.dumps(found, indent=1, ensure_ascii=False) + '\n'
    results.write_text(directory / 'report.json', text)
    results.write_text(directory / 'report.md', page.markdown(found))
    index = directory / 'index.html'
    results.write_text(index, page.html(found))
    return index
