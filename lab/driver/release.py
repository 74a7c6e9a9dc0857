# SPDX-License-Identifier: Apache-2.0
"""The release of OpenStack of the lab in the root, which can be raised and never lowered."""

from driver.errors import LabError
from driver.settings import NEWEST_RELEASE, RELEASES


def existing(settings) -> str | None:
    """Return the release that the databases in the root were made for; None without a lab."""
    if settings.release_file.exists():
        return settings.release_file.read_text().strip()
    # Before labs recorded their release, all of them had the newest.
    installed = (settings.root / 'state' / 'installed').exists()
    return NEWEST_RELEASE if installed else None


def older_than_databases(settings):
    """Yield the problem if the settings name an older release than the databases have."""
    made = existing(settings)
    order = list(RELEASES)
    if made and order.index(settings.release) < order.index(made):
        yield (
            f'release: the databases in {settings.root} are of OpenStack {made}, which the '
            f'services of {settings.release} cannot read; run make lab-clean first, or set '
            f'release = "{made}"'
        )


def record(settings) -> None:
    """Write the release of the settings into the root, before a database gets its schema."""
    settings.release_file.parent.mkdir(exist_ok=True)
    settings.release_file.write_text(f'{settings.release}\n')


def require(settings) -> None:
    """Return if the settings name the release that the lab has.

    :raises LabError: they name another.
    """
    made = existing(settings)
    if made and made != settings.release:
        raise LabError(
            f'release: the lab in {settings.root} has OpenStack {made}, not {settings.release}; '
            'leave the setting empty, or run make lab to upgrade the lab'
        )
