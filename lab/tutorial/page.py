# SPDX-License-Identifier: Apache-2.0
"""The commands of a page, with the output that it shows below each of them."""

import dataclasses
import pathlib
import re

_PROMPT = re.compile(r'^(\s+)\$ (.*)$')
_CREATED = re.compile(r'openstack database (instance|backup|backup policy) (?:create|take) (\S+)')


@dataclasses.dataclass(frozen=True)
class Step:
    """A command of a page.

    :param line: the number of its line, from 1
    :param command: as a shell reads it, with its continuation lines
    :param shown: the lines of output below it, without indentation
    :param output_at: the indexes of the first line of the output, and of the one after the last
    """

    line: int
    command: str
    shown: tuple[str, ...]
    indentation: str
    output_at: tuple[int, int]


def steps(text: str) -> list[Step]:
    """Return the commands after prompts, in the order of the page."""
    lines = text.splitlines()
    found = []
    index = 0
    while index < len(lines):
        prompt = _PROMPT.match(lines[index])
        if not prompt:
            index += 1
            continue
        number, indentation = index + 1, prompt[1]
        command = [prompt[2]]
        while command[-1].endswith('\\'):
            index += 1
            command.append(lines[index].removeprefix(indentation))
        index += 1
        end = _end_of_output(lines, index, indentation)
        shown = tuple(line.removeprefix(indentation) for line in lines[index:end])
        found.append(Step(number, '\n'.join(command), shown, indentation, (index, end)))
        index = end
    return found


def record(text: str, outputs: list[list[str]]) -> str:
    """Return the page with other output below its first commands.

    :param outputs: lines by command; the commands after the last of these keep their output
    """
    lines = text.splitlines()
    known = list(zip(steps(text), outputs, strict=False))
    # From the end, so that the indexes of those before stay.
    for step, output in reversed(known):
        start, end = step.output_at
        lines[start:end] = [(step.indentation + line).rstrip() for line in output]
    return '\n'.join(lines) + '\n'


def created(found: list[Step], kind: str) -> list[str]:
    """Return the names of the resources of a kind that the commands create.

    :param kind: ``instance``, ``backup`` or ``backup policy``
    """
    matches = (_CREATED.search(' '.join(step.command.split())) for step in found)
    return [match[2] for match in matches if match and match[1] == kind]


def read(path: pathlib.Path) -> str:
    """Return the text of a page.

    :raises ValueError: it has no command
    """
    text = path.read_text()
    if not steps(text):
        raise ValueError(f'{path} has no command after a prompt "$ "')
    return text


def _end_of_output(lines: list[str], start: int, indentation: str) -> int:
    """Return the index after the last line of output: a prompt or the end of the block follows."""
    end = start
    for index in range(start, len(lines)):
        line = lines[index]
        if line.strip() and (not line.startswith(indentation) or _PROMPT.match(line)):
            break
        if line.strip():
            end = index + 1
    return end
