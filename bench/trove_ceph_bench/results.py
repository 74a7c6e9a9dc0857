# SPDX-License-Identifier: Apache-2.0
"""The results folder: one directory for each repeat, and in it one for each configuration.

``doc/source/reference/bench-results.rst`` describes the layout. A run exists if its ``run.json``
does, which is written last and atomically; other files may be left from an interrupted run. The
store writes results unchanged, but refuses to write a password.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from trove_ceph import exceptions
from trove_ceph_bench import model

FORMAT_FILE = 'format'
PLAN_FILE = 'plan.yaml'
CONFIG_FILE = 'benchmark_config.yaml'
DISCLOSURE_FILE = 'disclosure.json'
RUN_FILE = 'run.json'
RAW_DIRECTORY = 'raw'
REPORT_DIRECTORY = 'report'

_FORMAT_LINE = re.compile(r'trove-ceph-bench (\d+)\s*')
_ITERATION = re.compile(r'\d{8}')
_ATTEMPT = re.compile(r'attempt-(\d+)')

#: A key is secret if it *ends* in one of these words, unless its value is a switch or a number:
#: ``default_password_lifetime`` and ``disconnect_on_expired_password`` are not secret.
_SECRET_KEY = re.compile(r'(password|passwd|passphrase|secret)$', re.IGNORECASE)
_HARMLESS = re.compile(r'(on|off|yes|no|true|false|null|none|\d*|\*+)', re.IGNORECASE)
_SECRET_IN_URL = re.compile(r'://[^/\s:@]*:[^/\s@]+@')


@dataclasses.dataclass(frozen=True)
class Run:
    """One stored measurement.

    :param path: its directory
    :param failed_attempts: results of the attempts that failed before, in order
    """

    iteration: int
    config: Mapping[str, Any]
    run: Mapping[str, Any]
    disclosure: Mapping[str, Any]
    path: Path
    failed_attempts: Sequence[Mapping[str, Any]] = ()


def config_hash(config: Mapping[str, Any]) -> str:
    """Return the 12 hex digits that name a configuration, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]


class Store:
    """A results folder. Each file is written atomically; reading changes nothing.

    Every method may raise ResultsFormatError for unusable content, and OSError for a file system
    error (disk full, permissions).
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    def create(self, plan_text: str, environment: Mapping[str, str] | None = None) -> 'Store':
        """Create the folder, or continue one that holds results of a plan of the same name.

        :param plan_text: stored as ``plan.yaml``; it replaces that of a continued folder, so that
            a plan may grow between two runs
        :param environment: the variables on which the plan's commands depend, None if there are
            none; those of the results must have been the same
        :raises InvalidPlanError: the plan holds a password
        """
        plan = yaml.safe_load(plan_text)
        secret = next(_secrets(plan), None)
        if secret:
            raise exceptions.InvalidPlanError(
                f'the plan holds a password at {secret}, and plans are stored with the results; '
                f'name a file or an environment variable instead'
            )
        if self.path.exists() and not self._is_empty():
            self.open()
            self._refuse_other_plan(plan)
            self._refuse_other_environment(environment)
        self.path.mkdir(parents=True, exist_ok=True)
        write_text(self.path / FORMAT_FILE, f'trove-ceph-bench {model.FORMAT}\n')
        write_text(self.path / PLAN_FILE, plan_text)
        return self

    def open(self) -> 'Store':
        """Check that the folder exists and holds results of this format version."""
        if not self.path.is_dir():
            raise exceptions.ResultsFormatError(
                f'{self.path}: no such results folder; check the path, or measure first'
            )
        try:
            line = (self.path / FORMAT_FILE).read_text(errors='replace')
        except (FileNotFoundError, IsADirectoryError) as error:
            raise exceptions.ResultsFormatError(
                f'{self.path}: not a results folder of trove-ceph-bench (it has no file '
                f'"{FORMAT_FILE}"); nothing was changed, name another folder'
            ) from error
        match = _FORMAT_LINE.fullmatch(line)
        if not match:
            raise exceptions.ResultsFormatError(
                f'{self.path / FORMAT_FILE}: "{line[:40].strip()}" is not a format of '
                f'trove-ceph-bench; name another folder'
            )
        if int(match[1]) != model.FORMAT:
            raise exceptions.ResultsFormatError(
                f'{self.path}: results of format {match[1]}, this version reads format '
                f'{model.FORMAT}; use the version that measured them, or measure into a new folder'
            )
        return self

    def plan(self) -> Mapping[str, Any]:
        """Return the stored plan."""
        return _read_yaml(self.path / PLAN_FILE)

    def run_directory(self, iteration: int, config: Mapping[str, Any]) -> Path:
        """Create the directory of a run, with its configuration and ``raw/``, and return it."""
        directory = self._directory(iteration, config)
        (directory / RAW_DIRECTORY).mkdir(parents=True, exist_ok=True)
        self._write_config(directory, config)
        return directory

    def put_attempt_aside(self, iteration: int, config: Mapping[str, Any]) -> None:
        """Make room for another attempt at a run.

        The files of an attempt that failed go to a subdirectory ``attempt-N`` and stay with the
        run; those of one that the user interrupted, or that has no result, are removed.
        """
        directory = self._directory(iteration, config)
        if not directory.exists():
            return
        outcome = directory / RUN_FILE
        is_kept = outcome.exists() and _read_run(outcome).get('reason') != model.INTERRUPTED
        used = [int(match[1]) for _, match in _attempts(directory)]
        files = [path for path in directory.iterdir() if not _ATTEMPT.fullmatch(path.name)]
        kept = directory / f'attempt-{max(used, default=0) + 1}'
        if is_kept:
            kept.mkdir()
        # The result goes last: until then the attempt is found where it was.
        for path in sorted(files, key=lambda path: path.name == RUN_FILE):
            if is_kept:
                path.rename(kept / path.name)
            elif path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def is_complete(self, iteration: int, config: Mapping[str, Any]) -> bool:
        """Return whether the run is complete, so that it need not be measured again."""
        path = self._directory(iteration, config) / RUN_FILE
        return path.exists() and _read_run(path)['complete'] is True

    def write(
        self,
        iteration: int,
        config: Mapping[str, Any],
        disclosure: Mapping[str, Any],
        run: Mapping[str, Any],
    ) -> Path:
        """Store the result of a run and return its directory; ``run.json`` is written last.

        :raises ResultsFormatError: the result seems to hold a password; nothing was written
        """
        for name, content in (
            (CONFIG_FILE, config),
            (DISCLOSURE_FILE, disclosure),
            (RUN_FILE, run),
        ):
            _refuse_secrets(name, content)
        directory = self.run_directory(iteration, config)
        write_text(directory / DISCLOSURE_FILE, _json(disclosure))
        write_text(directory / RUN_FILE, _json(run))
        return directory

    def runs(self) -> list[Run]:
        """Return all runs with a result, also incomplete ones, by repeat and then by time."""
        self.open()
        found = [
            _read(iteration, directory)
            for iteration in sorted(self.path.iterdir())
            if _ITERATION.fullmatch(iteration.name)
            for directory in sorted(iteration.glob('id-*'))
            if (directory / RUN_FILE).exists()
        ]
        return sorted(found, key=lambda run: (run.iteration, str(run.run.get('started'))))

    def _is_empty(self) -> bool:
        return self.path.is_dir() and not any(self.path.iterdir())

    def _directory(self, iteration: int, config: Mapping[str, Any]) -> Path:
        return self.path / f'{iteration:08d}' / f'id-{config_hash(config)}'

    def _write_config(self, directory: Path, config: Mapping[str, Any]) -> None:
        _refuse_secrets(CONFIG_FILE, config)
        # Convert to JSON types, as the hash does: no tuples and no Python tags in the file.
        text = yaml.safe_dump(json.loads(json.dumps(config)), sort_keys=False, allow_unicode=True)
        write_text(directory / CONFIG_FILE, text)

    def _refuse_other_plan(self, plan: Any) -> None:
        if not (self.path / PLAN_FILE).exists():
            return
        ours, theirs = (each.get('name') for each in (plan, self.plan()))
        if ours != theirs:
            raise exceptions.ResultsFormatError(
                f'{self.path}: the folder holds results of the plan "{theirs}", not of "{ours}"; '
                f'name another folder'
            )

    def _refuse_other_environment(self, environment: Mapping[str, str] | None) -> None:
        for run in self.runs():
            before = run.config.get('environment')
            where = f'{self.path}: {run.path.relative_to(self.path)}'
            if before is None and environment is not None:
                raise exceptions.ResultsFormatError(
                    f'{where} does not tell the values of the variables BENCH_… that the commands '
                    f'of the plan use, because an older version measured it, or another plan; '
                    f'name another folder'
                )
            old, new = before or {}, environment or {}
            for name in sorted(old.keys() | new.keys()):
                if old.get(name) != new.get(name):
                    raise exceptions.ResultsFormatError(
                        f'{where} was measured with {name} {old.get(name, "unset")}, which is now '
                        f'{new.get(name, "unset")}, and the commands of the plan use it; set it as '
                        f'before, or name another folder'
                    )


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically: after a crash it is either the old one or the new one."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f'.{path.name}.')
    try:
        with os.fdopen(descriptor, 'w', encoding='utf-8') as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp() creates files that only the owner can read.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _attempts(directory: Path) -> list[tuple[Path, re.Match[str]]]:
    """Return the directories of the attempts that a run keeps, in order."""
    found = [(path, _ATTEMPT.fullmatch(path.name)) for path in directory.iterdir()]
    matching = [(path, match) for path, match in found if match]
    return sorted(matching, key=lambda each: int(each[1][1]))


def _read(iteration: Path, directory: Path) -> Run:
    config = _read_yaml(directory / CONFIG_FILE)
    if config_hash(config) != directory.name.removeprefix('id-'):
        raise exceptions.ResultsFormatError(
            f'{directory / CONFIG_FILE}: the file was changed after the measurement (its hash is '
            f'{config_hash(config)}); restore it, or remove the folder to measure again'
        )
    disclosure = directory / DISCLOSURE_FILE
    return Run(
        iteration=int(iteration.name),
        config=config,
        run=_read_run(directory / RUN_FILE),
        disclosure=_read_json(disclosure) if disclosure.exists() else {},
        path=directory,
        failed_attempts=[
            _read_run(path / RUN_FILE)
            for path, _ in _attempts(directory)
            if (path / RUN_FILE).exists()
        ],
    )


def _read_run(path: Path) -> Mapping[str, Any]:
    run = _read_json(path)
    if run.get('format') != model.FORMAT:
        raise exceptions.ResultsFormatError(
            f'{path}: format {run.get("format")}, this version reads format {model.FORMAT}; '
            f'use the version that measured it, or remove its folder to measure again'
        )
    missing = {'kind', 'complete'} - run.keys()
    if missing:
        raise _damaged(path, f'keys are missing: {", ".join(sorted(missing))}')
    return run


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    return _mapping(path, content)


def _read_yaml(path: Path) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(path.read_text())
    except FileNotFoundError as error:
        raise _damaged(path, 'the file is missing') from error
    except (ValueError, yaml.YAMLError) as error:
        raise _damaged(path, ' '.join(str(error).split())) from error
    return _mapping(path, content)


def _mapping(path: Path, content: Any) -> Mapping[str, Any]:
    if not isinstance(content, dict):
        raise _damaged(path, f'expected a mapping, found {type(content).__name__}')
    return content


def _damaged(path: Path, why: str) -> exceptions.ResultsFormatError:
    if path.name == PLAN_FILE:
        remedy = 'restore it'
    else:
        remedy = f'restore it, or remove {path.parent} to measure that run again'
    return exceptions.ResultsFormatError(f'{path}: damaged: {why}; {remedy}')


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + '\n'


def holds_secret(content: Any) -> bool:
    """Return whether the store would refuse content, since it seems to hold a password."""
    return next(_secrets(content), None) is not None


def _refuse_secrets(name: str, content: Any) -> None:
    secret = next(_secrets(content), None)
    if secret:
        raise exceptions.ResultsFormatError(
            f'{name}: the result holds a password at {secret}; nothing was written'
        )


def _secrets(content: Any, at: str = '') -> Iterator[str]:
    """Yield the paths of passwords: values of secret keys, and URLs with a password."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            here = f'{at}.{key}' if at else str(key)
            is_scalar = isinstance(value, str | int | float)
            if is_scalar and _SECRET_KEY.search(str(key)) and not _HARMLESS.fullmatch(str(value)):
                yield here
            else:
                yield from _secrets(value, here)
    elif isinstance(content, list | tuple):
        for number, value in enumerate(content):
            yield from _secrets(value, f'{at}[{number}]')
    elif isinstance(content, str) and _SECRET_IN_URL.search(content):
        yield at or 'the top level'
