# SPDX-License-Identifier: Apache-2.0
"""Plan this machine as a hyper-converged host: ``python -m hci_profile SETTINGS.json``.

It writes below ``etc/hci`` of the lab: the description of the host (``hci.yaml``), the plan, the
rendered files, and what of them applies here (``profile.json``). It changes nothing else.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from hci_profile import inventory, profile
from hci_profile.errors import ProfileError

_HEAD = (
    '# This machine, enlarged: each CPU stands for {cpus}, each MiB of memory and disk for {mib}.\n'
    '# Written by the lab from the settings hci_cpu_scale and hci_memory_scale.\n'
)


def make(settings: dict[str, Any]) -> profile.Profile:
    """Plan, render, and write the profile.

    :raises ProfileError: the plan has errors, or a value is too small for this machine
    """
    root = Path(settings['lab_root'])
    directory = root / 'etc' / 'hci'
    directory.mkdir(parents=True, exist_ok=True)
    machine = inventory.describe(str(root / 'state'))
    file = directory / 'hci.yaml'
    # JSON is YAML.
    head = _HEAD.format(cpus=settings['lab_hci_cpu_scale'], mib=settings['lab_hci_memory_scale'])
    file.write_text(f'{head}{json.dumps(inventory.document(machine, settings), indent=1)}\n')
    program = root / 'venv' / 'bin' / 'trove-ceph-manage'
    plan = _run([program, 'hci', 'plan', file, '-f', 'json'])
    (directory / 'plan.json').write_text(plan)
    _run([program, 'hci', 'render', file, '--output', directory / 'rendered'])
    made = profile.derive(machine, settings, json.loads(plan), directory / 'rendered')
    profile.save(root, made)
    return made


def _run(command: list[Any]) -> str:
    done = subprocess.run(
        [str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode:
        said = done.stderr.strip() or _errors(done.stdout)
        raise ProfileError(
            f'this machine cannot be planned as a hyper-converged host: {said}\n'
            'Raise hci_cpu_scale, hci_memory_scale or osd_gib (lab/lab.toml explains them), or set '
            'profile = "decoupled".'
        )
    return done.stdout


def _errors(plan: str) -> str:
    """Return the errors of a plan as text."""
    try:
        findings = json.loads(plan)['findings']
    except (ValueError, KeyError):
        return plan[-1000:]
    return '; '.join(
        f'{one["field"]} is {one["observed"]}, and must be {one["expected"]}'
        for one in findings
        if one['level'] == 'error'
    )


def main(argv: list[str]) -> int:
    """Make the profile; return the exit status."""
    settings = json.loads(Path(argv[1]).read_text())
    try:
        make(settings)
    except ProfileError as error:
        print(f'lab: {error}', file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv))
