# SPDX-License-Identifier: Apache-2.0
"""The directive ``state-machine``: draw and list a state machine of ``trove_ceph.db``.

Its argument is the module with the table of transitions. With the option ``brief`` it draws only
the ways from one state to another, for readers who see states, and no events; ``without`` names
states to leave out. The picture needs the program ``dot`` of graphviz. Without it, the page shows
the source text.
"""

import importlib
import shutil

import state_graph
from docutils import nodes
from docutils.parsers.rst import Directive, directives
from docutils.statemachine import StringList
from sphinx.ext.graphviz import graphviz


class StateMachine(Directive):
    """Draw a state machine and list its transitions."""

    required_arguments = 1
    option_spec = {
        'brief': directives.flag,
        'without': directives.class_option,
        'alt': directives.unchanged,
    }

    def run(self):
        machine = importlib.import_module(f'trove_ceph.db.{self.arguments[0]}')
        is_brief = 'brief' in self.options
        without = self.options.get('without', ())
        source = state_graph.brief(machine.TRANSITIONS, without) if is_brief else machine.as_dot()
        if shutil.which('dot'):
            picture = graphviz()
            picture['code'] = source
            picture['options'] = {}
            picture['alt'] = self.options.get('alt', f'The states of {self.arguments[0]}')
        else:
            picture = nodes.literal_block(source, source, language='text')
        return [picture] if is_brief else [picture, *self._table(machine.TRANSITIONS)]

    def _table(self, transitions):
        lines = ['.. list-table::', '   :header-rows: 1', '', '   * - State', '     - Event']
        lines += ['     - State afterwards']
        for start, event, end in transitions:
            lines += [f'   * - {start}', f'     - {event}', f'     - {end}']
        container = nodes.container()
        self.state.nested_parse(StringList(lines, self.name), self.content_offset, container)
        return container.children


def setup(app):
    app.setup_extension('sphinx.ext.graphviz')
    app.add_directive('state-machine', StateMachine)
    return {'parallel_read_safe': True}
