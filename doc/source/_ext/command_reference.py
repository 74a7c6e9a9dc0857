# SPDX-License-Identifier: Apache-2.0
"""The directive ``command-reference``: a section for each command of a program, from its parser.

Its argument is a program of ``command_parsers``. Options that choose the output's format, which
many commands have, are in a section of their own at the end.
"""

import command_parsers
import command_text
from sphinx.util.docutils import SphinxDirective


class CommandReference(SphinxDirective):
    """Describe the commands of a program."""

    required_arguments = 1

    def run(self):
        program = self.arguments[0]
        parsers = list(command_parsers.of(program))
        lines = []
        for name, parser in parsers:
            # The page's title is that of the program.
            if name != program:
                lines += command_text.heading(name.removeprefix(f'{program} '))
            lines += command_text.describe(name, parser)
        lines += command_text.describe_output_options(parser for _, parser in parsers)
        return self.parse_text_to_nodes('\n'.join(lines), allow_section_headings=True)


def setup(app):
    app.add_directive('command-reference', CommandReference)
    return {'parallel_read_safe': True}
