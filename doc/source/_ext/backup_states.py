# SPDX-License-Identifier: Apache-2.0
"""The directive ``backup-states``: draw and list the state machine of backups from its table.

The picture needs the program ``dot`` of graphviz. Without it, the page shows the source text.
"""

import shutil

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.ext.graphviz import graphviz

from trove_ceph.db import backup_states


class BackupStates(Directive):
    """Draw the state machine and list its transitions."""

    def run(self):
        source = backup_states.as_dot()
        if shutil.which('dot'):
            picture = graphviz()
            picture['code'] = source
            picture['options'] = {}
        else:
            picture = nodes.literal_block(source, source, language='text')
        return [picture, *self._table()]

    def _table(self):
        lines = ['.. list-table::', '   :header-rows: 1', '', '   * - State', '     - Event']
        lines += ['     - State afterwards']
        for start, event, end in backup_states.TRANSITIONS:
            lines += [f'   * - {start}', f'     - {event}', f'     - {end}']
        container = nodes.container()
        self.state.nested_parse(StringList(lines, 'backup-states'), self.content_offset, container)
        return container.children


def setup(app):
    app.setup_extension('sphinx.ext.graphviz')
    app.add_directive('backup-states', BackupStates)
    return {'parallel_read_safe': True}
