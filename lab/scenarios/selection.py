# SPDX-License-Identifier: Apache-2.0
"""The selection of tests, and known failures on stock Trove."""

import dataclasses
import pathlib
import re

import yaml

FILE = pathlib.Path(__file__).resolve().parent.parent / 'roles/tempest/files/scenarios.yml'


@dataclasses.dataclass(frozen=True)
class Selection:
    """The file's contents: patterns of test names, and reasons of failures by pattern."""

    ours: list[str]
    theirs: list[str]
    smoke: list[str]
    expected_failures: dict[str, str]

    def reason_to_fail(self, name: str) -> str | None:
        """Return why a test fails on stock Trove, or None if it must pass."""
        for pattern, reason in self.expected_failures.items():
            if re.search(pattern, name):
                return reason
        return None


def load(path: pathlib.Path) -> Selection:
    values = yaml.safe_load(path.read_text())
    expected = {entry['test']: entry['reason'] for entry in values.pop('expected_failures')}
    return Selection(expected_failures=expected, **values)


def pattern(chosen: Selection, *, whose: str | None, smoke: bool, regex: str | None) -> str:
    """Return the regular expression for Tempest's selection of tests.

    :param whose: ``ours``, ``theirs``, or None for both
    :param regex: a further condition on the names
    """
    suites = {'ours': chosen.ours, 'theirs': chosen.theirs, None: chosen.ours + chosen.theirs}
    conditions = [suites[whose]]
    if smoke:
        conditions.append(chosen.smoke)
    if regex:
        conditions.append([regex])
    return '^' + ''.join(f'(?=.*(?:{"|".join(one)}))' for one in conditions)
