# SPDX-License-Identifier: Apache-2.0
"""Commands in reStructuredText, from the parsers of their command lines."""

import argparse
import itertools
import re
from collections.abc import Iterable, Iterator

_OUTPUT_TITLE = re.compile(r'output formatters|.* formatter$', re.IGNORECASE)
_OPTION = re.compile(r'(?<![^\s("\'])(--[a-z][\w=-]*\w)(?![^\s)"\'.,;:])')
_FORMAT = 'FORMAT'
_WIDTH = 84


def heading(title: str) -> list[str]:
    """Return the heading of a section."""
    return [title, '=' * len(title), '']


def describe(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the description, usage, options and epilog of a command, in reStructuredText."""
    yield from _prose(parser.description or '')
    yield from ['', f'.. program:: {name}', '', '.. code-block:: text', '']
    yield from _indented(_usage(parser), 3)
    yield ''
    output = _output_actions(parser)
    for action in parser._actions:
        if action not in output:
            yield from _option(parser, action)
    yield from _epilog(parser.epilog or '')


def describe_output_options(parsers: Iterable[argparse.ArgumentParser]) -> Iterator[str]:
    """Yield a section with the output options of all commands, nothing if they have none."""
    known = list(parsers)
    found: dict[tuple[str, ...], tuple[argparse.ArgumentParser, argparse.Action]] = {}
    for parser in known:
        for action in _output_actions(parser):
            found.setdefault(tuple(action.option_strings), (parser, action))
    if not found:
        return
    yield from heading('Output options')
    yield 'Commands whose usage ends with ``[output options]`` have these. Not each command has '
    yield f'all formats; they are {_all_formats(known)}.'
    yield from ['', '.. program:: output', '']
    for parser, action in found.values():
        yield from _option(parser, action, _FORMAT if '--format' in action.option_strings else None)


def _usage(parser: argparse.ArgumentParser) -> list[str]:
    formatter = argparse.HelpFormatter(parser.prog, width=_WIDTH)
    output = _output_actions(parser)
    shown = [action for action in parser._actions if action not in output]
    formatter.add_usage(parser.usage, shown, parser._mutually_exclusive_groups, prefix='')
    lines = formatter.format_help().strip().splitlines()
    return lines + (['    [output options]'] if output else [])


def _output_actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    groups = [one for one in parser._action_groups if _OUTPUT_TITLE.match(one.title or '')]
    return [action for group in groups for action in group._group_actions]


def _all_formats(parsers: Iterable[argparse.ArgumentParser]) -> str:
    formats = {
        str(choice)
        for parser in parsers
        for action in _output_actions(parser)
        if '--format' in action.option_strings
        for choice in action.choices or ()
    }
    return ', '.join(f'``{name}``' for name in sorted(formats))


def _option(
    parser: argparse.ArgumentParser, action: argparse.Action, value: str | None = None
) -> Iterator[str]:
    if action.help == argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction):
        return
    value = _value(action) if value is None else value
    names = [f'{name} {value}'.strip() for name in action.option_strings] or [value]
    yield f'.. option:: {", ".join(names)}'
    yield ''
    text = (action.help or '') % dict(vars(action), prog=parser.prog)
    yield from _indented(_paragraph(text.splitlines()), 3)
    yield ''


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ''
    if isinstance(action.metavar, tuple):
        return ' '.join(action.metavar)
    if action.metavar:
        return action.metavar
    if action.choices is not None:
        return '{' + ','.join(map(str, action.choices)) + '}'
    return action.dest.upper() if action.option_strings else action.dest


def _prose(text: str) -> Iterator[str]:
    """Yield paragraphs; tables, lists and what is indented keep their lines."""
    for block in _blocks(text.strip('\n').splitlines()):
        if any(re.match(r'\s|[-*] ', line) or '   ' in line for line in block):
            yield from ['.. code-block:: text', '', *_indented(block, 3), '']
        else:
            yield from [*_paragraph(block), '']


def _epilog(text: str) -> Iterator[str]:
    """Yield the parts of an epilog, such as ``examples:``, which stand out from their lines."""
    part: list[str] = []
    for line in [*text.strip('\n').splitlines(), None]:
        if line is None or re.match(r'\S', line):
            if part and part[0].endswith(':') and len(part) > 1:
                heading, *body = part
                yield from ['', f'.. rubric:: {heading.rstrip(":").capitalize()}', '']
                yield from ['.. code-block:: text', '', *_indented(body, 3), '']
            else:
                yield from _prose('\n'.join(part))
            part = []
        part.append(line)


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    for is_text, block in itertools.groupby(lines, lambda line: bool(line.strip())):
        if is_text:
            yield list(block)


def _paragraph(lines: list[str]) -> list[str]:
    """Return text that means itself, with options as literals, whose dashes stay as they are."""
    marked = (_OPTION.sub(r'``\1``', line.strip()) for line in lines)
    return [''.join(map(_escaped, re.split(r'(``.+?``)', line))) for line in marked]


def _escaped(text: str) -> str:
    return text if text.startswith('``') else re.sub(r'([\\`*|_])', r'\\\1', text)


def _indented(lines: Iterable[str], width: int) -> list[str]:
    return [' ' * width + line if line else '' for line in lines]
