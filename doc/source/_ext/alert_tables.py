# SPDX-License-Identifier: Apache-2.0
"""The directive ``alerts``: list the alerts of a file of rules for Prometheus.

Its argument is the path of the file, relative to the root of the repository.
"""

from pathlib import Path

import yaml
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

_ROOT = Path(__file__).parents[3]


class Alerts(Directive):
    """List alerts with their conditions and the pages that tell what to do."""

    required_arguments = 1

    def run(self):
        path = _ROOT / self.arguments[0]
        self.state.document.settings.record_dependencies.add(str(path))
        lines = ['.. list-table::', '   :header-rows: 1', '   :widths: 35 12 10 60 20', '']
        lines += [
            '   * - Alert',
            '     - Severity',
            '     - After',
            '     - Condition',
            '     - See',
        ]
        for group in yaml.safe_load(path.read_text())['groups']:
            for rule in group['rules']:
                lines += [f'   * - {rule["alert"]}', f'     - {rule["labels"]["severity"]}']
                lines += [f'     - {rule["for"]}', f'     - ``{" ".join(rule["expr"].split())}``']
                lines += [f'     - :doc:`/{rule["annotations"]["runbook"]}`']
        container = nodes.container()
        self.state.nested_parse(StringList(lines, self.name), self.content_offset, container)
        return container.children


def setup(app):
    app.add_directive('alerts', Alerts)
    return {'parallel_read_safe': True}
