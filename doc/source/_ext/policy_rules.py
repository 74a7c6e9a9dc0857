# SPDX-License-Identifier: Apache-2.0
"""The directive ``policy-rules``: list rules of the policy of the API with defaults, from the code.

Its arguments are the resources of the rules, which are their names up to the first colon.
"""

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

from trove_ceph.api import rules


class PolicyRules(Directive):
    """List rules."""

    required_arguments = 1
    optional_arguments = 9

    def run(self):
        lines = ['.. list-table::', '   :header-rows: 1', '   :widths: 34 22 44', '']
        lines += ['   * - Rule', '     - Default', '     - What it allows']
        found = [one for one in rules.list_rules() if resource_of(one.name) in self.arguments]
        unknown = set(self.arguments) - {resource_of(one.name) for one in found}
        if unknown:
            raise self.error(f'no rules of {", ".join(sorted(unknown))}; see trove_ceph.api.rules')
        for one in found:
            [operation] = one.operations
            path = operation['path'].partition('{account_id}')[2]
            if one.name.endswith(':all_projects'):
                path += '?all_projects=1'
            lines += [f'   * - ``{one.name}``', f'     - ``{one.check_str}``']
            lines += [f'     - {one.description} ``{operation["method"]} {path}``']
        container = nodes.container()
        self.state.nested_parse(StringList(lines, self.name), self.content_offset, container)
        return container.children


def resource_of(rule):
    """Return the resource whose use a rule allows."""
    return rule.partition(':')[0]


def setup(app):
    app.add_directive('policy-rules', PolicyRules)
    return {'parallel_read_safe': True}
