# SPDX-License-Identifier: Apache-2.0
"""The directive ``metrics``: list the metrics of one kind of process, from the code.

Its argument is a key of ``trove_ceph.metrics.catalog.METRICS``.
"""

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

from trove_ceph.metrics import catalog


class Metrics(Directive):
    """List metrics with their types, labels and meanings."""

    required_arguments = 1

    def run(self):
        lines = ['.. list-table::', '   :header-rows: 1', '   :widths: 40 10 20 60', '']
        lines += ['   * - Metric', '     - Type', '     - Labels', '     - Meaning']
        for one in catalog.METRICS[self.arguments[0]]:
            labels = ', '.join(f'``{label}``' for label in one.labels) or 'none'
            lines += [f'   * - ``{one.name}``', f'     - {one.kind}']
            lines += [f'     - {labels}', f'     - {one.text}']
        container = nodes.container()
        self.state.nested_parse(StringList(lines, self.name), self.content_offset, container)
        return container.children


def setup(app):
    app.add_directive('metrics', Metrics)
    return {'parallel_read_safe': True}
