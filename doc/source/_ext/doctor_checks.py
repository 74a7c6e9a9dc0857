# SPDX-License-Identifier: Apache-2.0
"""The directives ``doctor-checks`` and ``doctor-options``: what the doctor examines, from its code.

``doctor-checks`` lists the checks of all systems, ``doctor-options`` the options of configuration
files that it requires.
"""

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

from trove_ceph.doctor import checks, settings


class _Table(Directive):
    """A table with a heading and rows."""

    heading = ()
    widths = ()

    def run(self):
        lines = [
            '.. list-table::',
            '   :header-rows: 1',
            f'   :widths: {" ".join(self.widths)}',
            '',
        ]
        for row in [self.heading, *self.rows()]:
            lines += [
                f'   {"*" if number == 0 else " "} - {cell}' for number, cell in enumerate(row)
            ]
        container = nodes.container()
        self.state.nested_parse(StringList(lines, self.name), self.content_offset, container)
        return container.children


class Checks(_Table):
    """List the checks."""

    heading = ('Check', 'System', 'What holds')
    widths = ('20', '14', '66')

    def rows(self):
        return [(f'``{one.name}``', str(one.system), one.promise) for one in checks.ALL]


class Options(_Table):
    """List the required options."""

    heading = ('Services', 'Option', 'Level', 'Required')
    widths = ('18', '34', '10', '38')

    def rows(self):
        return [
            (
                ', '.join(one.all_readers),
                f'``[{one.group or "each back end"}] {one.option.name}``',
                str(one.level),
                one.expected,
            )
            for one in settings.REQUIREMENTS
        ]


def setup(app):
    app.add_directive('doctor-checks', Checks)
    app.add_directive('doctor-options', Options)
    return {'parallel_read_safe': True}
