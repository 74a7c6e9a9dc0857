# SPDX-License-Identifier: Apache-2.0
"""The directive ``host-settings``: the settings of one area from the table of hosts.

Its argument is the area.
"""

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

from trove_ceph.hci import host_settings


class HostSettings(Directive):
    """Describe each setting: origin, verdict, value, reason and sources."""

    required_arguments = 1

    def run(self):
        area = host_settings.Area(self.arguments[0])
        found = [one for one in host_settings.load() if one.area is area]
        lines = [line for one in found for line in self._lines(one)]
        container = nodes.container()
        self.state.nested_parse(StringList(lines, self.name), self.content_offset, container)
        return container.children

    def _lines(self, setting):
        where = f' ([{setting.section}])' if setting.section else ''
        yield f'``{setting.name}``{where}: **{setting.verdict}**'
        yield f'    {setting.purpose} {setting.reason}'
        yield ''
        if setting.value is not None:
            # A literal block, since a value may have the characters of inline markup.
            yield '    Written::'
            yield ''
            target = f'{setting.who}: ' if setting.who else ''
            yield from (f'        {target}{line}' for line in setting.value.splitlines())
            yield ''
        for seed in setting.seeds:
            yield f'    * {seed.document}, {seed.where}: ``{seed.value}``'
        for source in setting.sources:
            yield f'    * {source}'
        yield ''


def setup(app):
    app.add_directive('host-settings', HostSettings)
    return {'parallel_read_safe': True}
