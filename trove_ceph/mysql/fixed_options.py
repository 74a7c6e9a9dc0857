# SPDX-License-Identifier: Apache-2.0
"""The settings of a server that are fixed when its data directory is initialised.

A server refuses data that were initialised with another value, or keeps the old one without notice.
"""

from collections.abc import Mapping

#: The values with which golden volumes are initialised, by the settings that have no default there.
INITIAL: Mapping[str, str] = {'innodb_data_file_path': 'ibdata1:10M:autoextend'}
#: The settings that are fixed, with their defaults in MySQL 8.4 and 9; None: there is no default
#: that could be written in a configuration.
_DEFAULTS: Mapping[str, str | None] = {
    'default_table_encryption': 'OFF',
    'innodb_data_file_path': None,
    'innodb_data_home_dir': None,
    'innodb_directories': None,
    'innodb_doublewrite_dir': None,
    'innodb_log_group_home_dir': None,
    'innodb_page_size': '16384',
    'innodb_redo_log_encrypt': 'OFF',
    'innodb_undo_directory': None,
    'innodb_undo_log_encrypt': 'OFF',
    'lower_case_table_names': '0',
}
_SAME = {'16K': '16384', 'FALSE': 'OFF', 'TRUE': 'ON'}
_OFF = {'0': 'OFF', '1': 'ON'}


def find_differing(*settings: Mapping[str, object]) -> list[str]:
    """Return the names of settings that differ from the initial ones, in order.

    :param settings: of one server, by their names; later ones override earlier ones
    """
    found: dict[str, object] = {}
    for given in settings:
        found |= {_name(name): value for name, value in given.items()}
    return sorted(
        name
        for name, default in _DEFAULTS.items()
        if name in found and _value(found[name], default) != INITIAL.get(name, default)
    )


def _name(name: str) -> str:
    return name.strip().lower().replace('-', '_').removeprefix('loose_')


def _value(value: object, default: str | None) -> str:
    if isinstance(value, bool):
        return 'ON' if value else 'OFF'
    text = str(value).strip()
    if default is None:
        return text
    text = _SAME.get(text.upper(), text.upper())
    return _OFF.get(text, text) if default == 'OFF' else text
