# SPDX-License-Identifier: Apache-2.0
"""Making a running cluster match a description; never deleting, never lowering redundancy."""

import os

from cephcluster import keys, layout
from cephcluster.errors import UsageError

CLEAN_TIMEOUT_SEC = 120


class Applier:
    """Brings rules, pools and users to what a description says, and records each change.

    :param mon: a monitor.Monitor.
    :param settings: the layout.Settings of the cluster, for the place of the keyrings.
    """

    def __init__(self, mon, settings):
        self._mon = mon
        self._settings = settings
        self.changes = []
        self.kept = []

    def apply(self, spec, timeout_sec=CLEAN_TIMEOUT_SEC):
        """Make the cluster match and wait until all placement groups are active and clean.

        :returns: a JSON-able summary: changed, changes and what was kept because it is safer.
        :raises UsageError: an existing rule or pool contradicts the description.
        """
        rules = self._ensure_rules(spec.rules)
        self._ensure_pools(spec, rules)
        for user in spec.users:
            self._ensure_user(user)
        self._mon.wait_until_clean(timeout_sec)
        return {'changed': bool(self.changes), 'changes': self.changes, 'kept': self.kept}

    def _ensure_rules(self, wanted):
        existing = {rule['rule_name']: rule for rule in self._mon.command('osd crush rule dump')}
        for rule in wanted:
            found = existing.get(rule.name)
            if found is None:
                self._mon.command(
                    'osd crush rule create-replicated',
                    name=rule.name,
                    root='default',
                    type=rule.failure_domain,
                    **{'class': rule.device_class},
                )
                self.changes.append(f'rule {rule.name} created')
                continue
            shape = rule_shape(found)
            if shape != (rule.device_class, rule.failure_domain):
                raise UsageError(
                    f'rule {rule.name} exists for {shape[0]} by {shape[1]}, described for '
                    f'{rule.device_class} by {rule.failure_domain}: describe a new rule instead'
                )
        dump = self._mon.command('osd crush rule dump')
        return {rule['rule_name']: rule for rule in dump}

    def _ensure_pools(self, spec, rules):
        existing = {pool['pool_name']: pool for pool in self._mon.command('osd dump')['pools']}
        described = {rule.name: rule for rule in spec.rules}
        for pool in spec.pools:
            if pool.name not in existing:
                self._create_pool(pool, described[pool.rule])
            else:
                self._adjust_pool(pool, existing[pool.name], rules)

    def _create_pool(self, pool, rule):
        common = {'pool': pool.name, 'pg_num': pool.pg_num, 'pgp_num': pool.pg_num}
        if pool.erasure:
            self._ensure_erasure_profile(pool, rule)
            self._mon.command(
                'osd pool create',
                pool_type='erasure',
                erasure_code_profile=pool.name,
                **common,
            )
            self._set(pool.name, 'allow_ec_overwrites', 'true')
        else:
            self._mon.command(
                'osd pool create', pool_type='replicated', rule=rule.name, size=pool.size, **common
            )
            # The monitor takes a size of one only by an explicit second step.
            if pool.size == 1:
                self._set(pool.name, 'size', 1, yes_i_really_mean_it=True)
        if pool.min_size is not None:
            self._set(pool.name, 'min_size', pool.min_size)
        self._enable_application(pool)
        self.changes.append(f'pool {pool.name} created')

    def _ensure_erasure_profile(self, pool, rule):
        code = pool.erasure
        wanted = {
            'k': str(code.k),
            'm': str(code.m),
            'plugin': code.plugin,
            'technique': code.technique,
            'crush-device-class': rule.device_class,
            'crush-failure-domain': rule.failure_domain,
        }
        found = self._mon.find('osd erasure-code-profile get', name=pool.name)
        if found is None:
            self._mon.command(
                'osd erasure-code-profile set',
                name=pool.name,
                profile=[f'{key}={value}' for key, value in wanted.items()],
            )
            return
        differing = {key for key, value in wanted.items() if found.get(key) != value}
        if differing:
            raise UsageError(
                f'erasure code profile {pool.name} exists with other {", ".join(sorted(differing))}'
            )

    def _adjust_pool(self, pool, found, rules):
        if bool(found.get('erasure_code_profile')) != bool(pool.erasure):
            raise UsageError(f'pool {pool.name} exists and is of the other type: it cannot change')
        if pool.erasure:
            self._check_erasure(pool, found)
        else:
            self._raise_or_keep(pool.name, 'size', found['size'], pool.size)
            self._adjust_rule(pool, found, rules)
        if pool.min_size is not None:
            self._raise_or_keep(pool.name, 'min_size', found['min_size'], pool.min_size)
        target = max(found['pg_num'], found.get('pg_num_target', 0))
        self._raise_or_keep(pool.name, 'pg_num', target, pool.pg_num)
        if pool.application not in found['application_metadata']:
            self._enable_application(pool)
            self.changes.append(f'pool {pool.name}: application {pool.application}')

    def _check_erasure(self, pool, found):
        profile = self._mon.command(
            'osd erasure-code-profile get', name=found['erasure_code_profile']
        )
        shape = (int(profile['k']), int(profile['m']))
        if shape != (pool.erasure.k, pool.erasure.m):
            raise UsageError(
                f'pool {pool.name} is coded {shape[0]}+{shape[1]}, described '
                f'{pool.erasure.k}+{pool.erasure.m}: the code of a pool cannot change'
            )

    def _adjust_rule(self, pool, found, rules):
        by_id = {rule['rule_id']: rule for rule in rules.values()}
        present, wanted = by_id[found['crush_rule']], rules[pool.rule]
        if present['rule_name'] == wanted['rule_name']:
            return
        levels = {entry['name']: entry['type_id'] for entry in self._crush_types()}
        if levels[rule_shape(wanted)[1]] < levels[rule_shape(present)[1]]:
            self.kept.append(
                f'pool {pool.name}: rule {present["rule_name"]} has the wider failure domain'
            )
            return
        self._set(pool.name, 'crush_rule', wanted['rule_name'])
        self.changes.append(f'pool {pool.name}: rule {wanted["rule_name"]}')

    def _crush_types(self):
        return self._mon.command('osd crush dump')['types']

    def _raise_or_keep(self, pool, variable, present, wanted):
        if wanted > present:
            self._set(pool, variable, wanted)
            self.changes.append(f'pool {pool}: {variable} {present} -> {wanted}')
        elif wanted < present:
            self.kept.append(f'pool {pool}: {variable} {present}, described {wanted}')

    def _set(self, pool, variable, value, **flags):
        self._mon.command('osd pool set', pool=pool, var=variable, val=str(value), **flags)

    def _enable_application(self, pool):
        self._mon.command('osd pool application enable', pool=pool.name, app=pool.application)
        # A coded pool holds no image headers: nothing to prepare in it.
        if pool.application == 'rbd' and not pool.erasure:
            self._mon.initialise_rbd_pool(pool.name)

    def _ensure_user(self, user):
        found = self._mon.find('auth get', entity=user.name)
        caps = [word for service in sorted(user.caps) for word in (service, user.caps[service])]
        if found is None:
            found = self._mon.command('auth get-or-create', entity=user.name, caps=caps)
            self.changes.append(f'user {user.name} created')
        elif found[0]['caps'] != user.caps:
            self._mon.command('auth caps', entity=user.name, caps=caps)
            self.changes.append(f'user {user.name}: caps')
        text = keys.section(user.name, found[0]['key'])
        target = layout.keyring_file(self._settings, user.name)
        if not os.path.exists(target) or target.read_text() != text:
            layout.write_atomically(target, text, 0o640)
            self.changes.append(f'keyring {target.name} written')


def rule_shape(rule):
    """Return the device class and the failure domain that a dumped CRUSH rule chooses by."""
    device_class, failure_domain = '', ''
    for step in rule['steps']:
        if step['op'] == 'take':
            device_class = step['item_name'].partition('~')[2]
        elif step['op'].startswith('choose'):
            failure_domain = step['type']
    return device_class, failure_domain
