# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph.db.replacement_record import FailoverCause
from trove_ceph.strategies.failover import verdicts
from trove_ceph.strategies.failover.facts import (
    FailoverSettings,
    HostState,
    ServerState,
    Signs,
    Verdict,
)

HOSTS = {
    'up': HostState(is_up=True),
    'down': HostState(is_up=False),
    'closed': HostState(is_up=False, disabled_because='new memory'),
    'silently-closed': HostState(is_up=True, disabled_because=''),
}
CLIENT = ('10.0.0.1:0/1',)


def server(status='ACTIVE', host='up', **facts):
    return ServerState('server', status, host=host, **facts)


class VerdictsTest(base.BaseTestCase):
    def judge(self, one, clients=(), **settings):
        return verdicts.judge(
            Signs(server=one, clients=clients), HOSTS, FailoverSettings(**settings)
        )

    def assert_verdict(self, expected, words, *arguments, **settings):
        verdict, reason = self.judge(*arguments, **settings)
        self.assertEqual(expected, verdict, reason)
        self.assertIn(words, reason)

    def test_all_signs_agree(self):
        for words, one in (
            ('host down does not report to Nova', server(host='down')),
            ('SHUTOFF', server('SHUTOFF', stopped_by='')),
            ('ERROR', server('ERROR')),
            ('ERROR', server('ERROR', host=None)),
        ):
            self.assert_verdict(Verdict.SUSPECT, words, one)

    def test_causes(self):
        for expected, one in (
            (FailoverCause.HOST_DOWN, server(host='down')),
            (FailoverCause.HOST_DOWN, server(host=None)),
            (FailoverCause.SERVER_DOWN, server('SHUTOFF', host='down')),
            (FailoverCause.SERVER_DOWN, server('ERROR')),
            (FailoverCause.SERVER_HUNG, server()),
        ):
            self.assertIs(expected, verdicts.cause_of(one, HOSTS))

    def test_a_client_in_ceph_contradicts(self):
        for one in (server(), server(host='down'), server('SHUTOFF', stopped_by='')):
            self.assert_verdict(Verdict.UNCLEAR, CLIENT[0], one, CLIENT)
        self.assert_verdict(Verdict.UNCLEAR, CLIENT[0], server(), CLIENT, replace_hung=True)

    def test_nova_contradicts(self):
        self.assert_verdict(Verdict.UNCLEAR, 'Nova believes that its server runs', server())
        self.assert_verdict(Verdict.SUSPECT, 'although Nova believes', server(), replace_hung=True)
        for host in ('unknown', None):
            self.assert_verdict(
                Verdict.UNCLEAR, f'does not know host {host}', server(host=host), replace_hung=True
            )

    def test_what_somebody_requested_is_respected(self):
        """Whatever else the signs say."""
        for words, one in (
            ('deleted in Nova', None),
            ('locked', server(host='down', is_locked=True)),
            ('powering-off', server(host='down', task_state='powering-off')),
            ('PAUSED', server('PAUSED', host='down')),
            ('VERIFY_RESIZE', server('VERIFY_RESIZE', host='down')),
            ('UNKNOWN', server('UNKNOWN', host='down')),
            ('host closed is disabled in Nova: new memory', server(host='closed')),
            ('disabled in Nova: no reason', server(host='silently-closed')),
            ('stopped by operator', server('SHUTOFF', stopped_by='operator')),
            ('stopped by an unknown user', server('SHUTOFF')),
        ):
            self.assert_verdict(Verdict.HELD, words, one, (), replace_hung=True)

    def test_a_volume_on_no_tier_is_held(self):
        self.assert_verdict(Verdict.HELD, 'on no tier', server(host='down'), None)

    def test_a_rule_of_replacements_holds_without_further_signs(self):
        found = verdicts.judge(Signs('its task is BACKUP'), HOSTS, FailoverSettings())
        self.assertEqual((Verdict.HELD, 'its task is BACKUP'), found)
