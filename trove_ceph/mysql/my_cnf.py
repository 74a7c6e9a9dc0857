# SPDX-License-Identifier: Apache-2.0
"""Reads the settings in a my.cnf that was made for another machine."""

#: Where things lie, and what the server listens on: a sandbox decides these by itself.
PLACES = ('port', 'basedir', 'datadir', 'socket', 'pid_file', 'tmpdir')


def server_options(text: str) -> dict[str, str]:
    """Return the ``[mysqld]`` section's settings without places, names with underscores.

    Included directories are not followed.
    """
    section, options = '', {}
    for line in map(str.strip, text.splitlines()):
        if line.startswith('['):
            section = line.strip('[]')
        elif section == 'mysqld' and line and line[0] not in '#;!':
            name, _, value = (part.strip() for part in line.partition('='))
            options[name.replace('-', '_')] = value or 'ON'
    return {name: value for name, value in options.items() if name not in PLACES}
