# SPDX-License-Identifier: Apache-2.0
"""The directive ``alerts``: list the alerts of a file of rules for Prometheus.

Its argument is the path of the file, relative to the root of the repository. It belongs on a page
in the directory of the runbooks.
"""

import re
from pathlib import Path

import yaml
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

_ROOT = Path(__file__).parents[3]
_RUNBOOKS = _ROOT / 'doc/source/admin/runbooks.rst'
_PREFIX = 'admin/runbooks.html#'


class Alerts(Directive):
    """List alerts with their conditions and the runbooks that tell what to do."""

    required_arguments = 1

    def run(self):
        path = _ROOT / self.arguments[0]
        self.state.document.settings.record_dependencies.add(str(path))
        self.state.document.settings.record_dependencies.add(str(_RUNBOOKS))
        titles = runbooks()
        lines = ['.. list-table::', '   :header-rows: 1', '   :widths: 35 12 10 60 25', '']
        lines += [
            '   * - Alert',
            '     - Severity',
            '     - After',
            '     - Condition',
            '     - Runbook',
        ]
        for group in yaml.safe_load(path.read_text())['groups']:
            for rule in group['rules']:
                lines += [f'   * - {rule["alert"]}', f'     - {rule["labels"]["severity"]}']
                lines += [f'     - {rule["for"]}', f'     - ``{" ".join(rule["expr"].split())}``']
                anchor = rule['annotations']['runbook'].removeprefix(_PREFIX)
                if anchor not in titles:
                    raise self.error(f'{rule["alert"]}: runbooks.rst has no section #{anchor}')
                lines += [f'     - `{titles[anchor]} <runbooks.html#{anchor}>`__']
        container = nodes.container()
        self.state.nested_parse(StringList(lines, self.name), self.content_offset, container)
        return container.children


def runbooks() -> dict[str, str]:
    """Return the titles of the runbooks by their anchors in HTML."""
    titles = re.findall(r'(?m)^(.+)\n-{5,}$', _RUNBOOKS.read_text())
    return {nodes.make_id(title): title for title in titles}


def setup(app):
    app.add_directive('alerts', Alerts)
    return {'parallel_read_safe': True}
