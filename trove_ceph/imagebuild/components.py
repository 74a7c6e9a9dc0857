# SPDX-License-Identifier: Apache-2.0
"""Lists what is installed in a root directory: packages of Debian and of Python."""

import re
from collections.abc import Iterable
from email.message import Message
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

from trove_ceph.imagebuild import commands

#: Package of Debian, or of Python, with the keys type, name, version and licences, and for
#: Debian's architecture, source and source_version.
Component = dict[str, Any]

_FIELDS = "${Package}\\t${Version}\\t${Architecture}\\t${source:Package}\\t${source:Version}\\n"
_LICENCE = re.compile(r"^License:[ \t]*(\S.*)$", re.MULTILINE)
_CLASSIFIER = "License :: OSI Approved :: "
_LONGEST_NAME = 80


def debian(root: Path) -> list[Component]:
    """Return the packages that dpkg has installed in a root directory, in order of their names."""
    listing = commands.capture(["dpkg-query", "-W", "-f", _FIELDS], root=root)
    return [
        _of_debian(line.split("\t"), root / "usr/share/doc")
        for line in sorted(listing.splitlines())
    ]


def debian_archive(package: Path, unpacked: Path) -> Component:
    """Return one package that is not installed.

    :param package: the deb file.
    :param unpacked: directory with its contents.
    """
    argv = ["dpkg-deb", "--show", f"--showformat={_FIELDS}", str(package)]
    [line] = commands.capture(argv).splitlines()
    return _of_debian(line.split("\t"), unpacked / "usr/share/doc")


def _of_debian(fields: list[str], documents: Path) -> Component:
    name, version, architecture, source, source_version = fields
    copyright_file = documents / name / "copyright"
    text = copyright_file.read_text(errors="replace") if copyright_file.is_file() else ""
    return {
        "type": "deb",
        "name": name,
        "version": version,
        "architecture": architecture,
        "source": source,
        "source_version": source_version,
        "licences": machine_readable_licences(text),
    }


def machine_readable_licences(text: str) -> list[str]:
    """Return the licences that a copyright file in Debian's machine-readable format names."""
    if not text.lstrip().startswith("Format:"):
        return []
    return sorted({name.strip() for name in _LICENCE.findall(text)})


def python(site_packages: Iterable[Path]) -> list[Component]:
    """Return the distributions in directories of Python packages, in order of their names."""
    found = []
    for directory in site_packages:
        for path in directory.glob("*.dist-info"):
            metadata = PathDistribution(path).metadata
            found.append(
                {
                    "type": "pypi",
                    "name": re.sub(r"[-_.]+", "-", metadata["Name"]).lower(),
                    "version": metadata["Version"],
                    "licences": _python_licences(metadata),
                }
            )
    return sorted(found, key=lambda one: (one["name"], one["version"]))


def _python_licences(metadata: Any) -> list[str]:
    message: Message = metadata
    expression = message.get("License-Expression")
    if expression:
        return [expression]
    named = message.get("License", "").strip()
    # Some distributions have the whole text of their licence there.
    if named and "\n" not in named and len(named) <= _LONGEST_NAME and named != "UNKNOWN":
        return [named]
    classifiers = message.get_all("Classifier") or []
    return sorted(
        one.removeprefix(_CLASSIFIER) for one in classifiers if one.startswith(_CLASSIFIER)
    )


def versions(components: Iterable[Component]) -> dict[str, str]:
    """Return the version of each component by its name."""
    return {one["name"]: one["version"] for one in components}
