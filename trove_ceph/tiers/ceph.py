# SPDX-License-Identifier: Apache-2.0
"""The one place where tiers speak to Ceph: with its own commands, under an administrator's key.

Output that holds keys is never kept: of a user only the caps are read.
"""

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from trove_ceph.host import commands
from trove_ceph.tiers import crush, resources

_CONNECT_TIMEOUT_SEC = 30
_REPLICATED = 1
# CRUSH_ITEM_NONE: in place of a chunk that is not there.
_NO_OSD = 2**31 - 1


class Ceph:
    """One cluster.

    Every method raises StorageCommandError when Ceph refuses or does not answer. Making what is
    there already is harmless everywhere.

    :param conf: path of the cluster's ceph.conf
    :param user: cephx name of an administrator, without ``client.``
    """

    def __init__(self, conf: str, user: str, run: Callable[..., str] = commands.run):
        self._conf = conf
        self._user = user
        self._run = run

    def observe(self, with_data_pool: Collection[str] = ()) -> resources.CephState:
        """Return what there is.

        :param with_data_pool: the pools of which to tell where new images put their data
        """
        rules = self._rules_by_number()
        dump = self._ask('osd', 'dump')
        return resources.CephState(
            osds=crush.read_osds(self._ask('osd', 'tree')['nodes']),
            rules={rule.name: rule for rule in rules.values()},
            profiles=_profiles(dump),
            pools=self._pools(dump, rules, with_data_pool),
            usage=self.usage(),
            users=self.users(),
            copies=self._copies(dump),
            max_pgs_per_osd=self._max_pgs_per_osd(),
        )

    def rules(self) -> dict[str, resources.Rule]:
        """Return the CRUSH rules by name."""
        return {rule.name: rule for rule in self._rules_by_number().values()}

    def profiles(self) -> dict[str, resources.Profile | None]:
        """Return the erasure code profiles by name."""
        return _profiles(self._ask('osd', 'dump'))

    def pools(self, with_data_pool: Collection[str] = ()) -> dict[str, resources.Pool]:
        """Return the pools by name."""
        return self._pools(self._ask('osd', 'dump'), self._rules_by_number(), with_data_pool)

    def usage(self) -> dict[str, resources.Usage]:
        """Return what the pools hold, by their names; it lags by some seconds."""
        return {
            pool['name']: resources.Usage(
                objects=pool['stats']['objects'],
                stored_bytes=pool['stats']['stored'],
                fill=pool['stats']['percent_used'],
            )
            for pool in self._ask('df')['pools']
        }

    def users(self) -> dict[str, resources.User]:
        """Return the cephx users with their caps."""
        return {
            user['entity']: resources.User(user['entity'], user['caps'])
            for user in self._ask('auth', 'ls')['auth_dump']
        }

    def fsid(self) -> str:
        """Return the id of the cluster."""
        return str(self._ask('fsid')['fsid'])

    def create_profile(self, profile: resources.Profile) -> None:
        """Make an erasure code profile; fails if it exists with other values."""
        place = profile.placement
        self._tell(
            *('osd', 'erasure-code-profile', 'set', profile.name),
            *(f'k={profile.k}', f'm={profile.m}', f'plugin={profile.plugin}'),
            f'technique={profile.technique}',
            f'crush-root={place.root}',
            *([f'crush-device-class={place.device_class}'] if place.device_class else []),
            f'crush-failure-domain={place.failure_domain}',
        )

    def create_rule(self, rule: resources.Rule) -> None:
        """Make a CRUSH rule."""
        if rule.profile:
            self._tell('osd', 'crush', 'rule', 'create-erasure', rule.name, rule.profile)
            return
        place = rule.placement
        assert place
        self._tell(
            *('osd', 'crush', 'rule', 'create-replicated', rule.name),
            *(place.root, place.failure_domain),
            *([place.device_class] if place.device_class else []),
        )

    def create_pool(self, pool: resources.Pool) -> None:
        """Make a pool as it should be, and last of all enable it for RBD."""
        number = () if pool.pg_num is None else (pool.pg_num, pool.pg_num)
        kind = ('erasure', pool.profile, pool.rule) if pool.profile else ('replicated', pool.rule)
        size = () if pool.profile or pool.size == 1 else ('--size', pool.size)
        mode = ('--autoscale_mode', pool.autoscale)
        self._tell('osd', 'pool', 'create', pool.name, *number, *kind, *size, *mode)
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
        """Set the copies of a replicated pool; Ceph then chooses min_size, so it is set as well.

        Between the two, for about a second, Ceph's choice holds.
        """
        # The monitor takes a size of one only by an explicit second step.
        confirmation = ('--yes-i-really-mean-it',) if size == 1 else ()
        self._tell('osd', 'pool', 'set', name, 'size', size, *confirmation)
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
            self._tell('osd', 'pool', 'set', name, _VARIABLES.get(attribute, attribute), value)

    def create_user(self, user: resources.User) -> None:
        """Make a user, to whom Ceph gives a key; fails if it exists with other caps."""
        self._tell('auth', 'get-or-create', user.name, *_caps(user))

    def set_caps(self, user: resources.User) -> None:
        """Give a user exactly these caps."""
        self._tell('auth', 'caps', user.name, *_caps(user))

    def _enable_rbd(self, name: str, erasure: bool) -> None:
        if erasure:
            # Such a pool holds no image headers: there is nothing to prepare in it.
            self._tell('osd', 'pool', 'application', 'enable', name, 'rbd')
        else:
            self._rbd('pool', 'init', name)

    def _rules_by_number(self) -> dict[int, resources.Rule]:
        dump = self._ask('osd', 'crush', 'rule', 'dump')
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
        """Return how many copies each placement group of a pool has at least; lags by seconds.

        What min_size is compared with: OSDs that are still to be filled do not act yet.
        """
        names = {pool['pool']: pool['pool_name'] for pool in dump['pools']}
        found: dict[str, int] = {}
        for group in self._ask('pg', 'dump', 'pgs_brief')['pg_stats']:
            # A pool may have been made since.
            if name := names.get(int(group['pgid'].partition('.')[0])):
                acting = sum(osd != _NO_OSD for osd in group['acting'])
                found[name] = min(acting, found.get(name, acting))
        return found

    def _max_pgs_per_osd(self) -> int:
        """Return the limit of a running monitor, which may have it from its own ceph.conf."""
        monitor = self._ask('mon', 'dump')['mons'][0]['name']
        answer = self._ask('tell', f'mon.{monitor}', 'config', 'get', 'mon_max_pg_per_osd')
        return int(answer['mon_max_pg_per_osd'])

    def _ask(self, *words: object) -> Any:
        return json.loads(self._run(*self._command('ceph'), *words, '--format', 'json'))

    def _tell(self, *words: object) -> None:
        self._run(*self._command('ceph'), *words)

    def _rbd(self, *words: object) -> str:
        return self._run(*self._command('rbd'), *words)

    def _command(self, program: str) -> tuple[object, ...]:
        base = (program, '--conf', self._conf, '--id', self._user)
        if program == 'ceph':
            return (*base, '--connect-timeout', _CONNECT_TIMEOUT_SEC)
        return base


#: What the monitor calls the attributes of a pool that have another name there.
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
                # What Ceph's plugins take for keys that a profile lacks, as the default one does.
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
        # Where it is on its way to: Ceph splits and merges groups a few at a time.
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
