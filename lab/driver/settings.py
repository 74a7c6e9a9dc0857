# SPDX-License-Identifier: Apache-2.0
"""Read, merge and validate the lab's settings."""

import dataclasses
import difflib
import ipaddress
import os
import pathlib
import tomllib

from driver.errors import LabError

LAB_DIR = pathlib.Path(__file__).resolve().parent.parent
PREFIX = 'TROVE_CEPH_LAB_'
#: The releases of OpenStack, oldest first, and the file with the versions of all its packages.
RELEASES = {'2026.1': 'constraints-2026.1.txt', '2026.2': 'constraints.txt'}
NEWEST_RELEASE = list(RELEASES)[-1]
_BOUNDS = {
    'osds_nvme': (1, 16),
    'osds_hdd': (1, 16),
    'osd_gib': (4, 4096),
    'hdd_iops': (0, 100000),
    'cinder_volume_services': (1, 3),
    'warm_guests': (0, 8),
    'hot_guests': (0, 8),
    'second_compute': (0, 1),
    'failover_rounds': (1, 1000),
    'hci_cpu_scale': (1, 64),
    'hci_memory_scale': (1, 64),
    'flavor_ram_mib': (768, 524288),
    'flavor_vcpus': (1, 64),
    'volume_gib': (1, 1024),
    'sysbench_seconds': (5, 3600),
}
#: The name of the second compute host, of its folder and of its program.
SECOND_HOST = 'compute-2'
#: The choice of Trove's own task manager.
STOCK = 'stock'
CHOICES = {
    'release': tuple(RELEASES),
    'virt_type': ('auto', 'kvm', 'qemu'),
    'backups': (STOCK, 'trove_ceph'),
    'quiesce': ('none', 'ddl', 'freeze'),
    'profile': ('decoupled', 'hci'),
}
_CIDRS = ('management_cidr', 'public_cidr', 'tenant_cidr')


@dataclasses.dataclass(frozen=True)
class Settings:
    """Validated settings; ``values`` are the playbook's variables."""

    values: dict

    @property
    def root(self) -> pathlib.Path:
        return pathlib.Path(self.values['root'])

    @property
    def second_host(self) -> pathlib.Path:
        """The folder of the second compute host; only a lab of two hosts has it."""
        return self.root / SECOND_HOST

    @property
    def mark(self) -> pathlib.Path:
        """The file that marks the root as a lab's, which may be removed."""
        return self.root / '.trove-ceph-lab'

    @property
    def results(self) -> pathlib.Path:
        """The directory of the results of benchmarks."""
        return self.root / 'bench'

    @property
    def release_file(self) -> pathlib.Path:
        """The file with the release of OpenStack that the root's databases were made for."""
        return self.root / 'state' / 'release'

    @property
    def release(self) -> str:
        """The release of OpenStack that this lab has, or is to have."""
        return self.values['release']

    @property
    def cache(self) -> pathlib.Path:
        return pathlib.Path(self.values['cache'])

    @property
    def ports(self) -> dict:
        return self.values['ports']

    @property
    def host_ip(self) -> str:
        """The host's address on the management network, where the APIs listen."""
        return str(_first_host(self.values['management_cidr']))

    @property
    def public_ip(self) -> str:
        """The host's address on the network of the floating IPs."""
        return str(_first_host(self.values['public_cidr']))

    def playbook_vars(self) -> dict:
        """Return the variables for Ansible, all named ``lab_*``."""
        named = {f'lab_{key}': value for key, value in self.values.items()}
        return named | {
            'lab_constraints': str(LAB_DIR / RELEASES[self.release]),
            'lab_host_ip': self.host_ip,
            'lab_public_ip': self.public_ip,
        }


def load(lab_dir: pathlib.Path = LAB_DIR, environ=os.environ) -> Settings:
    """Return the settings from lab.toml, local.toml and the environment.

    :raises LabError: a key is unknown or a value is invalid.
    """
    values = _read(lab_dir / 'lab.toml')
    local = lab_dir / 'local.toml'
    if local.exists():
        _merge(values, _read(local), str(local))
    _merge_environ(values, environ)
    _validate(values)
    return _with_release(Settings(values))


def _with_release(settings):
    # Without a named release, every command takes the lab as it is.
    if not settings.release:
        made = settings.release_file
        settings.values['release'] = made.read_text().strip() if made.exists() else NEWEST_RELEASE
    _validate_choice(settings.values, 'release')
    return settings


def _read(path):
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as e:
        raise LabError(f'{path}: not valid TOML: {e}') from e


def _merge(values, extra, origin, trail=''):
    for key, value in extra.items():
        if key not in values:
            raise LabError(_unknown(origin, trail, key, values))
        if isinstance(values[key], dict) and isinstance(value, dict):
            _merge(values[key], value, origin, f'{key}.')
        else:
            values[key] = _convert(values[key], value, f'{origin}: {trail}{key}')


def _merge_environ(values, environ):
    flat = {key.upper(): (values, key) for key in values if key != 'ports'}
    flat |= {f'PORTS_{key.upper()}': (values['ports'], key) for key in values['ports']}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX):
            continue
        name = variable.removeprefix(PREFIX)
        if name not in flat:
            raise LabError(_unknown('environment', PREFIX, name, flat))
        table, key = flat[name]
        table[key] = _convert(table[key], text, variable)


def _unknown(origin, trail, key, known):
    # Without the common prefix, with which every name would be a close match.
    near = difflib.get_close_matches(key, known, n=1)
    hint = f'; did you mean {trail}{near[0]}?' if near else '.'
    return (
        f'{origin}: there is no setting {trail}{key}{hint} '
        f'The settings and their meaning: {LAB_DIR / "lab.toml"}'
    )


def _convert(current, value, name):
    if isinstance(current, dict):
        raise LabError(f'{name}: a table is needed, got {value!r}')
    if isinstance(current, int) and isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            raise LabError(f'{name}: a whole number is needed, got {value!r}') from None
    if type(current) is not type(value):
        raise LabError(f'{name}: a {type(current).__name__} is needed, got {value!r}')
    return value


def _validate(values):
    for key, (low, high) in _BOUNDS.items():
        if not low <= values[key] <= high:
            raise LabError(f'{key}: must be {low} to {high}, got {values[key]}')
    for key in ('root', 'cache'):
        path = pathlib.PurePath(values[key])
        if not path.is_absolute() or len(path.parts) < 3 or '..' in path.parts:
            raise LabError(
                f'{key}: an absolute path of at least two parts is needed, got {values[key]!r}'
            )
        # Normalised, without double or trailing slashes: the lab's processes
        # are recognised by it.
        values[key] = str(path)
    for key in CHOICES:
        if key != 'release' or values[key]:
            _validate_choice(values, key)
    if bool(values['mysql_image']) != bool(values['mysql_version']):
        raise LabError('mysql_image and mysql_version belong together: set both or neither')
    if values['mysql_image'] and not os.path.isfile(values['mysql_image']):
        raise LabError(f'mysql_image: there is no file {values["mysql_image"]}')
    _validate_networks(values)
    _validate_ports(values['ports'])


def _validate_choice(values, key):
    if values[key] not in CHOICES[key]:
        raise LabError(f'{key}: one of {", ".join(CHOICES[key])} is needed, got {values[key]!r}')


def _validate_networks(values):
    networks = []
    for key in _CIDRS:
        try:
            network = ipaddress.IPv4Network(values[key])
        except ValueError as e:
            raise LabError(f'{key}: {e}') from e
        if not 16 <= network.prefixlen <= 26:
            raise LabError(f'{key}: a prefix of /16 to /26 is needed, got {values[key]}')
        for other_key, other in networks:
            if network.overlaps(other):
                raise LabError(f'{key} {network} overlaps {other_key} {other}')
        networks.append((key, network))


def _validate_ports(ports):
    seen = {}
    for name, port in ports.items():
        if not 1 <= port <= 65535:
            raise LabError(f'ports.{name}: must be 1 to 65535, got {port}')
        if port in seen:
            raise LabError(f'ports.{name} and ports.{seen[port]} are both {port}')
        seen[port] = name


def _first_host(cidr):
    return next(ipaddress.IPv4Network(cidr).hosts())
