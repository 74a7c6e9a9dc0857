#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: commands that run once for a given input."""

import hashlib
import os
import subprocess
import time

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: once
short_description: run commands until they have all succeeded once
description:
  - Runs the commands in order unless a mark records that the same commands succeeded
    before with the same inputs. The mark is written last, so an interrupted run is
    repeated; the commands must be safe to repeat.
options:
  mark:
    description: file that records the success
    required: true
  commands:
    description: list of argument lists
    required: true
  inputs:
    description: files or texts on which the result depends
  log:
    description: file to which the commands' output is appended
    required: true
  environment:
    description: additional environment variables
  attempts:
    description: the number of attempts for a failing command
    default: 1
"""

LOG_LINES = 15
RETRY_WAIT_SEC = 5
CANNOT_EXECUTE = 127  # as in a shell


def inputs_digest(commands, inputs):
    """Return the digest of everything that the result depends on."""
    parts = [repr(commands).encode()]
    for item in inputs:
        parts.append(item.encode())
        if os.path.isfile(item):
            with open(item, 'rb') as f:
                parts.append(f.read())
        else:
            parts.append(b'')
    # Each with its length, so that text cannot move from one part to the next unnoticed.
    total = hashlib.sha256()
    for part in parts:
        total.update(b'%d:' % len(part) + part)
    return total.hexdigest()


def done_before(mark, digest):
    """Return whether the mark records this digest."""
    try:
        with open(mark) as f:
            return f.read().strip() == digest
    except FileNotFoundError:
        return False


def run(command, log, environment, attempts):
    """Run a command, retry it if it fails, and return the last exit code."""
    for attempt in range(attempts):
        if attempt:
            time.sleep(RETRY_WAIT_SEC)
        with open(log, 'ab') as out:
            out.write(f'+ {" ".join(command)}\n'.encode())
            out.flush()
            try:
                code = subprocess.run(
                    command,
                    env=environment,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                ).returncode
            except OSError as e:
                out.write(f'{e}\n'.encode())
                code = CANNOT_EXECUTE
        if code == 0:
            break
    return code


def main():
    module = AnsibleModule(
        argument_spec={
            'mark': {'type': 'path', 'required': True},
            'commands': {'type': 'list', 'elements': 'list', 'required': True},
            'inputs': {'type': 'list', 'elements': 'str', 'default': []},
            'log': {'type': 'path', 'required': True},
            'environment': {'type': 'dict', 'default': {}},
            'attempts': {'type': 'int', 'default': 1},
        }
    )
    p = module.params
    commands = [[str(word) for word in command] for command in p['commands']]
    digest = inputs_digest(commands, p['inputs'])
    if done_before(p['mark'], digest):
        module.exit_json(changed=False)
    environment = dict(os.environ, **{k: str(v) for k, v in p['environment'].items()})
    # The result for earlier inputs is no longer complete once a command has begun.
    if os.path.exists(p['mark']):
        os.unlink(p['mark'])
    for command in commands:
        code = run(command, p['log'], environment, p['attempts'])
        if code:
            with open(p['log'], errors='replace') as f:
                tail = ''.join(f.readlines()[-LOG_LINES:])
            module.fail_json(
                msg=f'{command[0]} failed with exit code {code}', stdout=tail, log=p['log']
            )
    os.makedirs(os.path.dirname(p['mark']), exist_ok=True)
    with open(p['mark'] + '.new', 'w') as f:
        f.write(digest)
    os.rename(p['mark'] + '.new', p['mark'])
    module.exit_json(changed=True)


if __name__ == '__main__':
    main()
