# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph.verification import error_log

# As MySQL 9.7.4 wrote it, shortened.
DAMAGED = """\
2026-11-21T18:48:30.100000Z 1 [System] [MY-013576] [InnoDB] InnoDB initialization has started.
2026-11-21T18:48:33.971000Z 1 [System] [MY-013577] [InnoDB] InnoDB initialization has ended.
2026-11-21T18:48:35.900000Z 52 [ERROR] [MY-011906] [InnoDB] Database page corruption on disk or a \
failed file read of page [page id: space=2, page number=4]. You may have to recover from a backup.
2026-11-21T18:48:35.900100Z 52 [Note] [MY-011876] [InnoDB] Page dump in ascii and hex (16384 bytes):
 len 16384; hex 73656372657431; asc secret1 ;
InnoDB: End of page dump
2026-11-21T18:48:35.900200Z 52 [ERROR] [MY-011906] [InnoDB] Database page corruption on disk or a \
failed file read of page [page id: space=2, page number=4]. You may have to recover from a backup.
2026-11-21T18:48:35.988555Z 52 [ERROR] [MY-013183] [InnoDB] Assertion failure: buf0buf.cc:4142
2026-11-21T18:48:35Z UTC - mysqld got signal 6 ;
Query (7f3c): SELECT 'secret2'
"""


class ErrorLogTest(base.BaseTestCase):
    def test_errors_once_and_in_order(self):
        messages = error_log.read(DAMAGED)

        self.assertEqual(
            ['MY-011906', 'MY-013183'], [one.code for one in error_log.errors(messages)]
        )

    def test_pages_and_statements_are_left_out(self):
        self.assertNotIn('secret', ' '.join(map(str, error_log.read(DAMAGED))))

    def test_quoted_text_is_kept_only_if_it_is_a_name(self):
        for text, expected in (
            ("Duplicate entry 'jo@example.org, 7' for key", "Duplicate entry '...' for key"),
            ("Cannot open './shop/orders.ibd'", "Cannot open './shop/orders.ibd'"),
            ('Table "a b" is gone', "Table '...' is gone"),
        ):
            self.assertEqual(expected, error_log.censor(text))
        self.assertEqual(300, len(error_log.censor('x' * 1000)))

    def test_recovery_time(self):
        self.assertEqual(3.871, error_log.recovery_sec(error_log.read(DAMAGED)))
        first_line = DAMAGED.partition('\n')[0]
        self.assertIsNone(error_log.recovery_sec(error_log.read(first_line)))

    def test_log_without_messages(self):
        self.assertEqual([], error_log.read(''))
