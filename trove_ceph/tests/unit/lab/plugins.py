# SPDX-License-Identifier: Apache-2.0
"""Load the lab's Ansible plugins without Ansible, and run modules as Ansible does."""

import importlib.util
import sys
import types

import fixtures

from trove_ceph.tests.unit.lab import LAB


class ModuleEnd(SystemExit):
    """The exit of a module with its result."""

    def __init__(self, failed, result):
        super().__init__(int(failed))
        self.failed = failed
        self.result = result


class AnsibleModule:
    """The parts of Ansible's class that the lab's modules use.

    :func:`run` sets ``parameters``.
    """

    parameters = {}

    def __init__(self, argument_spec):
        unknown = set(self.parameters) - set(argument_spec)
        missing = {
            name
            for name, spec in argument_spec.items()
            if spec.get('required') and name not in self.parameters
        }
        if unknown or missing:
            raise AssertionError(f'unknown: {unknown}, missing: {missing}')
        defaults = {name: spec.get('default') for name, spec in argument_spec.items()}
        self.params = defaults | self.parameters
        self.no_log_values = set()

    def exit_json(self, **result):
        raise ModuleEnd(False, result)

    def fail_json(self, **result):
        raise ModuleEnd(True, result)


class CallbackBase:
    def __init__(self):
        self._display = types.SimpleNamespace(display=lambda text, log_only: None)


def _fakes():
    fakes = {
        name: types.ModuleType(name)
        for name in (
            'ansible',
            'ansible.module_utils',
            'ansible.module_utils.basic',
            'ansible.plugins',
            'ansible.plugins.callback',
        )
    }
    fakes['ansible'].module_utils = fakes['ansible.module_utils']
    fakes['ansible.module_utils'].basic = fakes['ansible.module_utils.basic']
    fakes['ansible.module_utils.basic'].AnsibleModule = AnsibleModule
    fakes['ansible.plugins.callback'].CallbackBase = CallbackBase
    return fakes


def load(path, name):
    """Import the plugin at ``lab/plugins/{path}`` with a fake of Ansible."""
    fakes = _fakes()
    saved = {key: sys.modules.get(key) for key in fakes}
    sys.modules.update(fakes)
    try:
        spec = importlib.util.spec_from_file_location(name, LAB / 'plugins' / path)
        plugin = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(plugin)
    finally:
        for key, module in saved.items():
            if module is None:
                del sys.modules[key]
            else:
                sys.modules[key] = module
    return plugin


def run(plugin, **parameters):
    """Run a module's ``main`` with parameters; return its exit."""
    with fixtures.MonkeyPatch(f'{__name__}.AnsibleModule.parameters', parameters):
        try:
            plugin.main()
        except ModuleEnd as end:
            return end
    raise AssertionError('the module ended without a result')
