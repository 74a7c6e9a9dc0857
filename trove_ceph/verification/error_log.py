# SPDX-License-Identifier: Apache-2.0
"""Reads MySQL's error log, and leaves out what may be somebody's data.

When InnoDB finds a damaged page it writes all of it into the log, and a crash report has the
statement that ran. Neither is a message of its own with time and code, so only such are looked at;
what stands in quotes in them is kept when it can be the name of a file or a table.
"""

import dataclasses
import datetime
import re

_LINE = re.compile(
    r'(?P<time>\d{4}-\d\d-\d\dT[\d:.]+)(?:Z|[+-]\d\d:\d\d) \d+ \[(?P<level>\w+)\] '
    r'\[(?P<code>MY-\d+)\] \[(?P<part>\w+)\] (?P<text>.*)'
)
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_NAME = re.compile(r'[\w./#@$:-]{1,128}')
_TEXT_CHARACTERS = 300
_MOST_ERRORS = 5
_INNODB_BEGINS, _INNODB_READY = 'MY-013576', 'MY-013577'


@dataclasses.dataclass(frozen=True)
class Message:
    """One message, without what may be data."""

    time: datetime.datetime
    level: str
    code: str
    part: str
    text: str

    def __str__(self) -> str:
        return f'{self.code} {self.text}'


def read(text: str) -> list[Message]:
    """Return the messages of a log."""
    return [
        Message(
            datetime.datetime.fromisoformat(found['time']),
            found['level'],
            found['code'],
            found['part'],
            censor(found['text']),
        )
        for found in map(_LINE.fullmatch, text.splitlines())
        if found
    ]


def errors(messages: list[Message]) -> list[Message]:
    """Return the first errors, which tell what the later ones come from, each once."""
    found = {str(message): message for message in reversed(messages) if message.level == 'ERROR'}
    return list(reversed(found.values()))[:_MOST_ERRORS]


def recovery_sec(messages: list[Message]) -> float | None:
    """Return how long InnoDB took to be ready; None when it did not become so."""
    times = {message.code: message.time for message in messages}
    if not {_INNODB_BEGINS, _INNODB_READY} <= times.keys():
        return None
    return (times[_INNODB_READY] - times[_INNODB_BEGINS]).total_seconds()


def censor(text: str) -> str:
    """Leave out what may be data of a message, and what makes it long."""

    def keep_names(found: re.Match[str]) -> str:
        content = found[1] if found[1] is not None else found[2]
        return found[0] if _NAME.fullmatch(content) else "'...'"

    return _QUOTED.sub(keep_names, text)[:_TEXT_CHARACTERS]
