# SPDX-License-Identifier: Apache-2.0
"""Read MySQL's error log and leave out what may be tenant data.

When InnoDB finds a damaged page, it dumps the page into the log, and a crash report has the
statement that ran. Neither has the form of a message with a time and a code, so only lines of that
form are read. Quoted text in them is kept only if it can be the name of a file or a table.
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
    """One message, without possible tenant data."""

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
    """Return the first errors, each once; later errors are mostly their consequences."""
    found = {str(message): message for message in reversed(messages) if message.level == 'ERROR'}
    return list(reversed(found.values()))[:_MOST_ERRORS]


def recovery_sec(messages: list[Message]) -> float | None:
    """Return the seconds from the start of InnoDB until it was ready; None if it never was."""
    times = {message.code: message.time for message in messages}
    if not {_INNODB_BEGINS, _INNODB_READY} <= times.keys():
        return None
    return (times[_INNODB_READY] - times[_INNODB_BEGINS]).total_seconds()


def censor(text: str) -> str:
    """Remove possible tenant data from a message, and limit its length."""

    def keep_names(found: re.Match[str]) -> str:
        content = found[1] if found[1] is not None else found[2]
        return found[0] if _NAME.fullmatch(content) else "'...'"

    return _QUOTED.sub(keep_names, text)[:_TEXT_CHARACTERS]
