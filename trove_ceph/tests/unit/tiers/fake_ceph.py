# SPDX-License-Identifier: Apache-2.0
"""A Ceph cluster that answers the commands ``ceph`` and ``rbd`` from memory.

Answers have the form of Ceph 16, reduced to what is read. The automatic changes and refusals of
real monitors are imitated.
"""

import json

from trove_ceph import exceptions

FSID = '5e1c8c3a-0f4f-4f6e-9a61-0c1d3bb4f3aa'
_CLASSES = ('nvme', 'hdd')


class FakeCeph:
    """Stand in for the commands.

    :param hosts: number of hosts
    :param osds: number of OSDs of each device class on each host
    :param single_copies: whether the monitors allow them, which is not their default
    """

    def __init__(self, hosts=3, osds=2, classes=_CLASSES, max_pgs=250, single_copies=True):
        self.max_pgs = max_pgs
        self.single_copies = single_copies
        self.nodes = [{'id': -1, 'name': 'default', 'type': 'root', 'children': []}]
        self.rules = [_rule(0, 'replicated_rule', 'default', 'choose_firstn', 'osd')]
        self.profiles = {'default': {'k': '2', 'm': '2', 'plugin': 'jerasure', 'technique': 'x'}}
        self.pools = {}
        self.objects = {}
        #: The complete copies of each pool.
        self.copies = {}
        self.users = {'client.admin': {'mon': 'allow *', 'osd': 'allow *'}}
        self.changes = []
        for number in range(hosts):
            self._add_host(number, osds, classes)

    def _add_host(self, number, osds, classes):
        host = {'id': -2 - number, 'name': f'host{number}', 'type': 'host', 'children': []}
        self.nodes.append(host)
        self.nodes[0]['children'].append(host['id'])
        for device_class in classes:
            for _ in range(osds):
                osd = sum(node['type'] == 'osd' for node in self.nodes)
                host['children'].append(osd)
                self.nodes.append(
                    {'id': osd, 'name': f'osd.{osd}', 'type': 'osd', 'device_class': device_class}
                    | {'status': 'up', 'reweight': 1, 'crush_weight': 1.0}
                )

    def __call__(self, program, *words, timeout_sec=60):
        words = [str(word) for word in words]
        assert words[:1] == ['--conf'], words
        assert words[2] == '--id', words
        words = words[4:]
        if words[0] == '--connect-timeout':
            words = words[2:]
        if words[-2:-1] == ['--format']:
            return json.dumps(self._answer(program, words[:-2]))
        if program == 'rbd' and words[:3] == ['config', 'pool', 'list']:
            return json.dumps(self._answer(program, ['config', 'pool', 'list', words[-1]]))
        self.changes.append(' '.join([program, *words]))
        self._change(program, words)
        return 'key = secret'

    def _answer(self, program, words):
        if program == 'rbd':
            data_pool = self.pools[words[-1]].get('_data_pool')
            name = 'rbd_default_data_pool'
            rows = [{'name': name, 'value': data_pool, 'source': 'pool'}] if data_pool else []
            return [{'name': name, 'value': '', 'source': 'config'}] if not rows else rows
        answers = {
            'osd tree': lambda: {'nodes': self.nodes, 'stray': []},
            'osd crush rule dump': lambda: self.rules,
            'osd dump': lambda: {
                'pools': list(self.pools.values()),
                'erasure_code_profiles': self.profiles,
            },
            'pg dump pgs_brief': lambda: {
                'pg_stats': [group for name in self.pools for group in self._groups(name)]
            },
            'df': lambda: {'pools': [self._usage(name) for name in self.pools]},
            'auth ls': lambda: {
                'auth_dump': [
                    {'entity': name, 'key': 'secret', 'caps': caps}
                    for name, caps in self.users.items()
                ]
            },
            'fsid': lambda: {'fsid': FSID},
            'mon dump': lambda: {'mons': [{'name': 'a'}]},
            'tell mon.a config get mon_max_pg_per_osd': lambda: {
                'mon_max_pg_per_osd': str(self.max_pgs)
            },
            'tell mon.a config get mon_allow_pool_size_one': lambda: {
                'mon_allow_pool_size_one': str(self.single_copies).lower()
            },
        }
        return answers[' '.join(words)]()

    def _groups(self, name):
        pool = self.pools[name]
        complete = [*range(min(self.copies[name], pool['size']))]
        # In an erasure code, missing chunks keep their position.
        missing = [2**31 - 1] * (pool['size'] - len(complete)) if pool['type'] == 3 else []
        for number, acting in enumerate(([*range(pool['size'])], complete + missing)):
            yield {'pgid': f'{pool["pool"]}.{number:x}', 'state': 'active', 'acting': acting}

    def _usage(self, name):
        objects = self.objects.get(name, 0)
        stats = {'objects': objects, 'stored': objects * 4096, 'percent_used': objects / 10000}
        return {'name': name, 'stats': stats}

    def _change(self, program, words):
        verb = ' '.join(word for word in words if '=' not in word)
        for prefix, act in self._verbs(program):
            if verb.startswith(prefix):
                act(words[len(prefix.split()) :])
                return
        raise AssertionError(f'unknown command: {program} {words}')

    def _verbs(self, program):
        if program == 'rbd':
            return [('config pool set', self._set_data_pool), ('pool init', self._init)]
        return [
            ('osd erasure-code-profile set', self._set_profile),
            ('osd crush rule create-erasure', self._create_erasure_rule),
            ('osd crush rule create-replicated', self._create_rule),
            ('osd pool create', self._create_pool),
            ('osd pool set', self._set_pool),
            ('osd pool application enable', self._init),
            ('auth get-or-create', self._create_user),
            ('auth caps', self._set_caps),
        ]

    def _set_profile(self, words):
        values = dict(word.split('=') for word in words[1:])
        if self.profiles.setdefault(words[0], values) != values:
            refuse('EPERM: will not override erasure code profile')

    def _create_erasure_rule(self, words):
        name, profile = words
        code = self.profiles[profile]
        root = '~'.join(filter(None, [code['crush-root'], code.get('crush-device-class')]))
        domain = code['crush-failure-domain']
        op = 'choose_indep' if domain == 'osd' else 'chooseleaf_indep'
        self._add_rule(name, root, op, domain)

    def _create_rule(self, words):
        name, root, domain, *device_class = words
        op = 'choose_firstn' if domain == 'osd' else 'chooseleaf_firstn'
        self._add_rule(name, '~'.join([root, *device_class]), op, domain)

    def _add_rule(self, name, root, op, domain):
        if name not in [rule['rule_name'] for rule in self.rules]:
            self.rules.append(_rule(len(self.rules), name, root, op, domain))

    def _create_pool(self, words):
        options = {
            words[index]: words[index + 1]
            for index in range(len(words) - 1)
            if words[index].startswith('--')
        }
        words = [word for word in words if word not in {*options, *options.values()}]
        name, *rest = words
        if name in self.pools:
            return
        number = int(rest[0]) if rest[0].isdigit() else 32
        kind = [word for word in rest if not word.isdigit()]
        profile = kind[1] if kind[0] == 'erasure' else ''
        (rule,) = [rule['rule_id'] for rule in self.rules if rule['rule_name'] == kind[-1]]
        code = self.profiles[profile] if profile else {}
        k, m = int(code.get('k', 0)), int(code.get('m', 0))
        size = k + m if profile else int(options.get('--size', 3))
        self.copies[name] = size
        self.pools[name] = {
            'pool': len(self.pools) + 1,
            'pool_name': name,
            'type': 3 if profile else 1,
            'crush_rule': rule,
            'size': size,
            'min_size': k + min(1, m - 1) if profile else size - size // 2,
            'pg_num_target': number,
            'pg_autoscale_mode': options.get('--autoscale_mode', 'on'),
            'options': {},
            'application_metadata': {},
            'erasure_code_profile': profile,
            'flags_names': 'hashpspool',
        }

    def _set_pool(self, words):
        pool, variable, value = self.pools[words[0]], words[1], words[2]
        if variable == 'size':
            if value == '1' and '--yes-i-really-mean-it' not in words:
                refuse('EPERM: setting pool size 1 could lead to data loss')
            # The monitor changes min_size with the size.
            pool |= {'size': int(value), 'min_size': int(value) - int(value) // 2}
        elif variable == 'allow_ec_overwrites':
            pool['flags_names'] += ',ec_overwrites'
        elif variable == 'crush_rule':
            (rule,) = [rule for rule in self.rules if rule['rule_name'] == value]
            pool['crush_rule'] = rule['rule_id']
        elif variable in ('min_size', 'pg_num'):
            pool[{'pg_num': 'pg_num_target'}.get(variable, variable)] = int(value)
        elif variable == 'pg_autoscale_mode':
            pool[variable] = value
        elif variable == 'target_size_ratio':
            pool['options'][variable] = float(value)
        elif variable in ('compression_mode', 'compression_algorithm'):
            pool['options'][variable] = value
        else:
            refuse(f'EINVAL: invalid variable {variable}')

    def _init(self, words):
        self.pools[words[0]]['application_metadata']['rbd'] = {}

    def _set_data_pool(self, words):
        self.pools[words[0]]['_data_pool'] = words[2]

    def _create_user(self, words):
        caps = dict(zip(words[1::2], words[2::2], strict=True))
        if self.users.setdefault(words[0], caps) != caps:
            refuse('EINVAL: key exists but caps do not match')

    def _set_caps(self, words):
        self.users[words[0]] = dict(zip(words[1::2], words[2::2], strict=True))

    def state(self):
        """Return everything that commands can change, for comparison."""
        return json.loads(json.dumps([self.rules, self.profiles, self.pools, self.users]))


def refuse(reason):
    """Fail as a command fails."""
    raise exceptions.StorageCommandError(f'ceph failed with exit code 1: Error {reason}')


def _rule(number, name, root, op, domain):
    steps = [{'op': 'take', 'item': -1, 'item_name': root}]
    if 'indep' in op:
        steps.insert(0, {'op': 'set_chooseleaf_tries', 'num': 5})
    steps += [{'op': op, 'num': 0, 'type': domain}, {'op': 'emit'}]
    return {'rule_id': number, 'rule_name': name, 'steps': steps}
