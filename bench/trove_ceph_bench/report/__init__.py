# SPDX-License-Identifier: Apache-2.0
"""The report of a results folder: a page, the same as Markdown, and its data as JSON."""

import json
from pathlib import Path

from trove_ceph_bench import results


def prepare() -> None:
    """Load what drawing takes, so that hours of work do not end without a report.

    :raises ModuleNotFoundError: something is not installed
    """
    # Takes long, which no other command should wait for.
    from trove_ceph_bench.report import page  # noqa: F401


def write(store: results.Store, baseline: results.Store | None = None) -> Path:
    """Write the report into the folder and return the path of its page.

    Takes some seconds, which go into the plots. Files that are there already are replaced.

    :param baseline: another folder to compare with
    :raises ResultsFormatError: a folder cannot be used
    """
    # As above.
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
