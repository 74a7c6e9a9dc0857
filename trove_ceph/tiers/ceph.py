# SPDX-License-Identifier: Apache-2.0
"""The tiers' adapter to Ceph, which runs Ceph's commands with an administrator's key.

Keys in the output are never stored: only the caps of a user are read.
"""

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from trove_ceph.host import commands
from trove_ceph.tiers import crush, resources

_CONNECT_TIMEOUT_SEC = 30
_REPLICATED = 1
# CRUSH_ITEM_NONE: stands for a missing chunk.
_NO_OSD = 2**31 - 1


class Ceph:
    """One cluster.

    Every method raises StorageCommandError when Ceph refuses or does not answer. Each create method
    is idempotent.

    :param conf: path of the cluster's ceph.conf
    :param user: cephx name of an administrator, without ``client.``
    :param run: runs a command and returns its output
    """

    def __init__(self, conf: str, user: str, run: Callable[..., str] = commands.run):
        self._conf = conf
        self._user = user
        self._run = run

    def observe(self, with_data_pool: Collection[str] = ()) -> resources.CephState:
        """Return the present state of the cluster.

        :param with_data_pool: the pools whose default data pool is read
        """
        rules = self._rules_by_number()
        dump = self.query('osd', 'dump')
        monitor = self.query('mon', 'dump')['mons'][0]['name']
        return resources.CephState(
            osds=crush.read_osds(self.query('osd', 'tree')['nodes']),
            rules={rule.name: rule for rule in rules.values()},
            profiles=_profiles(dump),
            pools=self._pools(dump, rules, with_data_pool),
            usage=self.usage(),
            users=self.users(),
            copies=self._copies(dump),
            max_pgs_per_osd=int(self.option_of_monitor(monitor, 'mon_max_pg_per_osd')),
            allows_single_copy=(
                self.option_of_monitor(monitor, 'mon_allow_pool_size_one') == 'true'
            ),
        )

    def rules(self) -> dict[str, resources.Rule]:
        """Return the CRUSH rules by name."""
        return {rule.name: rule for rule in self._rules_by_number().values()}

    def profiles(self) -> dict[str, resources.Profile | None]:
        """Return the erasure code profiles by name."""
        return _profiles(self.query('osd', 'dump'))

    def pools(self, with_data_pool: Collection[str] = ()) -> dict[str, resources.Pool]:
        """Return the pools by name."""
        return self._pools(self.query('osd', 'dump'), self._rules_by_number(), with_data_pool)

    def usage(self) -> dict[str, resources.Usage]:
        """Return the usage of the pools by name; it lags by some seconds."""
        return {
            pool['name']: resources.Usage(
                objects=pool['stats']['objects'],
                stored_bytes=pool['stats']['stored'],
                fill=pool['stats']['percent_used'],
            )
            for pool in self.query('df')['pools']
        }

    def users(self) -> dict[str, resources.User]:
        """Return the cephx users with their caps."""
        return {
            user['entity']: resources.User(user['entity'], user['caps'])
            for user in self.query('auth', 'ls')['auth_dump']
        }

    def fsid(self) -> str:
        """Return the id of the cluster."""
        return str(self.query('fsid')['fsid'])

    def create_profile(self, profile: resources.Profile) -> None:
        """Create an erasure code profile; fail if it exists with other values."""
        placement = profile.placement
        self._execute(
            *('osd', 'erasure-code-profile', 'set', profile.name),
            *(f'k={profile.k}', f'm={profile.m}', f'plugin={profile.plugin}'),
            f'technique={profile.technique}',
            f'crush-root={placement.root}',
            *([f'crush-device-class={placement.device_class}'] if placement.device_class else []),
            f'crush-failure-domain={placement.failure_domain}',
        )

    def create_rule(self, rule: resources.Rule) -> None:
        """Create a CRUSH rule."""
        if rule.profile:
            self._execute('osd', 'crush', 'rule', 'create-erasure', rule.name, rule.profile)
            return
        placement = rule.placement
        assert placement
        self._execute(
            *('osd', 'crush', 'rule', 'create-replicated', rule.name),
            *(placement.root, placement.failure_domain),
            *([placement.device_class] if placement.device_class else []),
        )

    def create_pool(self, pool: resources.Pool) -> None:
        """Create a pool with all its settings, and enable it for RBD last."""
        number = () if pool.pg_num is None else (pool.pg_num, pool.pg_num)
        kind = ('erasure', pool.profile, pool.rule) if pool.profile else ('replicated', pool.rule)
        size = () if pool.profile or pool.size == 1 else ('--size', pool.size)
        mode = ('--autoscale_mode', pool.autoscale)
        self._execute('osd', 'pool', 'create', pool.name, *number, *kind, *size, *mode)
        if pool.size == 1:
            self.set_size(pool.name, pool.size, pool.min_size)
        for attribute in ('min_size', 'target_size_ratio', 'overwrites', 'data_pool'):
            if value := getattr(pool, attribute):
                self.set_pool(pool.name, attribute, value)
        if pool.compression_mode != 'none':
            self.set_pool(pool.name, 'compression_mode', pool.compression_mode)
            self.set_pool(pool.name, 'compression_algorithm', pool.compression_algorithm)
        self._enable_rbd(pool.name, bool(pool.profile))

    def set_size(self, name: str, size: int, min_size: int) -> None:
        """Set size and min_size of a replicated pool, because Ceph changes min_size with the size.

        Ceph's choice of min_size is effective for about a second between the two commands.
        """
        # The monitor accepts a size of one only with an explicit confirmation.
        confirmation = ('--yes-i-really-mean-it',) if size == 1 else ()
        self._execute('osd', 'pool', 'set', name, 'size', size, *confirmation)
        self.set_pool(name, 'min_size', min_size)

    def set_pool(self, name: str, attribute: str, value: Any, erasure: bool = False) -> None:
        """Set an attribute of resources.Pool other than its size.

        :param erasure: the pool is erasure-coded
        """
        if attribute == 'rbd':
            self._enable_rbd(name, erasure)
        elif attribute == 'data_pool':
            self._rbd('config', 'pool', 'set', name, 'rbd_default_data_pool', value)
        else:
            if isinstance(value, bool):
                value = str(value).lower()
            self._execute('osd', 'pool', 'set', name, _VARIABLES.get(attribute, attribute), value)

    def create_user(self, user: resources.User) -> None:
        """Create a user, for which Ceph generates a key; fail if it exists with other caps."""
        self._execute('auth', 'get-or-create', user.name, *_caps(user))

    def set_caps(self, user: resources.User) -> None:
        """Set the caps of a user to exactly these."""
        self._execute('auth', 'caps', user.name, *_caps(user))

    def _enable_rbd(self, name: str, erasure: bool) -> None:
        if erasure:
            # An erasure-coded pool holds no image headers, so "rbd pool init" is not needed.
            self._execute('osd', 'pool', 'application', 'enable', name, 'rbd')
        else:
            self._rbd('pool', 'init', name)

    def _rules_by_number(self) -> dict[int, resources.Rule]:
        dump = self.query('osd', 'crush', 'rule', 'dump')
        return {
            rule['rule_id']: resources.Rule(rule['rule_name'], crush.read_placement(rule))
            for rule in dump
        }

    def _pools(
        self,
        dump: Mapping[str, Any],
        rules: Mapping[int, resources.Rule],
        with_data_pool: Collection[str],
    ) -> dict[str, resources.Pool]:
        found = {}
        for pool in dump['pools']:
            name = pool['pool_name']
            data_pool = self._data_pool(name) if name in with_data_pool else None
            found[name] = _pool(pool, rules[pool['crush_rule']].name, data_pool)
        return found

    def _data_pool(self, name: str) -> str | None:
        rows = json.loads(self._rbd('config', 'pool', 'list', '--format', 'json', name))
        for row in rows:
            if row['name'] == 'rbd_default_data_pool' and row['source'] == 'pool':
                return row['value'] or None
        return None

    def _copies(self, dump: Mapping[str, Any]) -> dict[str, int]:
        """Return the smallest acting set of each pool's placement groups; it lags by seconds.

        This is what Ceph compares with min_size: OSDs that are being backfilled do not act yet.
        """
        names = {pool['pool']: pool['pool_name'] for pool in dump['pools']}
        found: dict[str, int] = {}
        for group in self.query('pg', 'dump', 'pgs_brief')['pg_stats']:
            # A pool may have been created meanwhile.
            if name := names.get(int(group['pgid'].partition('.')[0])):
                acting = sum(osd != _NO_OSD for osd in group['acting'])
                found[name] = min(acting, found.get(name, acting))
        return found

    def option_of_monitor(self, monitor: str, option: str) -> str:
        """Return the value that a running monitor uses, which its own ceph.conf may set."""
        return str(self.query('tell', f'mon.{monitor}', 'config', 'get', option)[option])

    def query(self, *words: object) -> Any:
        """Return the answer to a command that changes nothing."""
        return json.loads(self._run(*self._command('ceph'), *words, '--format', 'json'))

    def _execute(self, *words: object) -> None:
        self._run(*self._command('ceph'), *words)

    def _rbd(self, *words: object) -> str:
        return self._run(*self._command('rbd'), *words)

    def _command(self, program: str) -> tuple[object, ...]:
        base = (program, '--conf', self._conf, '--id', self._user)
        if program == 'ceph':
            return (*base, '--connect-timeout', _CONNECT_TIMEOUT_SEC)
        return base


#: The monitor's names of attributes that resources.Pool names otherwise.
_VARIABLES = {
    'autoscale': 'pg_autoscale_mode',
    'overwrites': 'allow_ec_overwrites',
    'rule': 'crush_rule',
}


def _caps(user: resources.User) -> list[str]:
    return [word for service in sorted(user.caps) for word in (service, user.caps[service])]


def _profiles(dump: Mapping[str, Any]) -> dict[str, resources.Profile | None]:
    return {name: _profile(name, found) for name, found in dump['erasure_code_profiles'].items()}


def _profile(name: str, found: Mapping[str, str]) -> resources.Profile | None:
    try:
        return resources.Profile(
            name=name,
            k=int(found['k']),
            m=int(found['m']),
            plugin=found['plugin'],
            technique=found['technique'],
            placement=resources.Placement(
                # The defaults of Ceph's plugins for missing keys; the default profile lacks them.
                root=found.get('crush-root') or 'default',
                device_class=found.get('crush-device-class') or None,
                failure_domain=found.get('crush-failure-domain') or 'host',
            ),
        )
    except KeyError:
        # Other plugins have other keys.
        return None


def _pool(found: Mapping[str, Any], rule: str, data_pool: str | None) -> resources.Pool:
    options = found['options']
    return resources.Pool(
        name=found['pool_name'],
        rule=rule,
        size=found['size'],
        min_size=found['min_size'],
        # The target: Ceph splits and merges placement groups gradually.
        pg_num=found['pg_num_target'],
        autoscale=found['pg_autoscale_mode'],
        target_size_ratio=options.get('target_size_ratio', 0.0),
        compression_mode=options.get('compression_mode', 'none'),
        compression_algorithm=options.get('compression_algorithm'),
        rbd='rbd' in found['application_metadata'],
        profile=(found['erasure_code_profile'] or None) if found['type'] != _REPLICATED else None,
        overwrites='ec_overwrites' in found['flags_names'].split(','),
        data_pool=data_pool,
    )
