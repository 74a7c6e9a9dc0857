# SPDX-License-Identifier: Apache-2.0
"""Parsing of a my.cnf that was written for another host."""

#: Paths and the port, which a sandbox chooses itself.
_HOST_OPTIONS = ('port', 'basedir', 'datadir', 'socket', 'pid_file', 'tmpdir')


def server_options(text: str) -> dict[str, str]:
    """Return the settings of the ``[mysqld]`` section without paths and port.

    Names have underscores. Included directories are ignored.
    """
    section, options = '', {}
    for line in map(str.strip, text.splitlines()):
        if line.startswith('['):
            section = line.strip('[]')
        elif section == 'mysqld' and line and line[0] not in '#;!':
            name, _, value = (part.strip() for part in line.partition('='))
            options[name.replace('-', '_')] = value or 'ON'
    return {name: value for name, value in options.items() if name not in _HOST_OPTIONS}
