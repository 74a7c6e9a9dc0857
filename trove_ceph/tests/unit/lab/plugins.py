# SPDX-License-Identifier: Apache-2.0
"""Load the lab's Ansible plugins without Ansible, and run modules the way Ansible does."""

import importlib.util
import sys
import types

import fixtures

from trove_ceph.tests.unit.lab import LAB


class ModuleEnd(SystemExit):
    """A module has reported its result, which ends it."""

    def __init__(self, failed, result):
        super().__init__(int(failed))
        self.failed = failed
        self.result = result


class AnsibleModule:
    """What the lab's modules use of Ansible's class; ``given`` is set by :func:`run`."""

    given = {}

    def __init__(self, argument_spec):
        unknown = set(self.given) - set(argument_spec)
        missing = {
            name
            for name, spec in argument_spec.items()
            if spec.get('required') and name not in self.given
        }
        if unknown or missing:
            raise AssertionError(f'unknown: {unknown}, missing: {missing}')
        defaults = {name: spec.get('default') for name, spec in argument_spec.items()}
        self.params = defaults | self.given
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
    """Return the plugin at ``lab/plugins/{path}``, made with a stand-in for Ansible."""
    fakes = _fakes()
    kept = {key: sys.modules.get(key) for key in fakes}
    sys.modules.update(fakes)
    try:
        spec = importlib.util.spec_from_file_location(name, LAB / 'plugins' / path)
        plugin = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(plugin)
    finally:
        for key, module in kept.items():
            if module is None:
                del sys.modules[key]
            else:
                sys.modules[key] = module
    return plugin


def run(plugin, **parameters):
    """Run a module's ``main`` with parameters; return how it ended."""
    with fixtures.MonkeyPatch(f'{__name__}.AnsibleModule.given', parameters):
        try:
            plugin.main()
        except ModuleEnd as end:
            return end
    raise AssertionError('the module ended without a result')
