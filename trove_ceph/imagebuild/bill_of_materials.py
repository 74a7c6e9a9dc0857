# SPDX-License-Identifier: Apache-2.0
"""Writes the bill of materials of an image, in the format CycloneDX 1.6.

The same components give the same bytes. Specification: https://cyclonedx.org/docs/1.6/json/
"""

import json
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from trove_ceph.imagebuild.components import Component

_NAMESPACE = uuid.UUID("6c1a7f0e-52d8-4b3e-9f86-0d4e7b21c95a")
_TITLE = "trove-ceph guest image"


def render(
    *,
    profile: str,
    image_hash: str,
    components: Iterable[Component],
    container: Mapping[str, Any],
    sources: Iterable[str],
    created: int,
) -> str:
    """Return the text of the bill.

    :param image_hash: the hash under which the image is cached.
    :param components: what is in the image beside the container of MySQL.
    :param container: its name, version, hash, and its components if they are known.
    :param sources: lines of apt's list of sources that Debian's packages came from.
    :param created: seconds since 1970.
    """
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, image_hash)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(created, UTC).isoformat(),
            "component": {
                "type": "operating-system",
                "bom-ref": "image",
                "name": _TITLE,
                "version": image_hash,
                "properties": [
                    {"name": "trove-ceph:profile", "value": profile},
                    *({"name": "trove-ceph:source", "value": line} for line in sources),
                ],
            },
        },
        "components": [
            *(_component(one) for one in components),
            {
                "type": "container",
                "bom-ref": "container",
                "name": container["name"],
                "version": container["version"],
                "hashes": [{"alg": "SHA-256", "content": container["sha256"]}],
                "components": [
                    _component(one, within="container/") for one in container["components"]
                ],
            },
        ],
    }
    return json.dumps(bill, indent=1, sort_keys=True) + "\n"


def _component(one: Component, *, within: str = "") -> dict[str, Any]:
    purl = package_url(one)
    shown: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"{within}{purl}",
        "name": one["name"],
        "version": one["version"],
        "purl": purl,
    }
    if one["licences"]:
        shown["licenses"] = [{"license": {"name": name}} for name in one["licences"]]
    if "sha256" in one:
        shown["hashes"] = [{"alg": "SHA-256", "content": one["sha256"]}]
    if one["type"] == "deb":
        shown["properties"] = [
            {
                "name": "trove-ceph:debian-source",
                "value": f"{one['source']} {one['source_version']}",
            }
        ]
    return shown


def package_url(one: Component) -> str:
    """Return the package URL of a component (https://github.com/package-url/purl-spec)."""
    name, version = quote(one["name"], safe=""), quote(one["version"], safe=":")
    if one["type"] == "deb":
        return f"pkg:deb/debian/{name}@{version}?arch={one['architecture']}"
    return f"pkg:pypi/{name}@{version}"
