# SPDX-License-Identifier: Apache-2.0
"""The reference of the programs has all commands and options, and each program a manual page."""

import argparse
import runpy
import sys
import tomllib
from pathlib import Path

import fixtures
from oslotest import base

import trove_ceph
from trove_ceph.cmd.manage import shell

CHECKOUT = Path(trove_ceph.__file__).parent.parent
SOURCE = CHECKOUT / 'doc/source'
PROJECT = tomllib.loads((CHECKOUT / 'pyproject.toml').read_text())['project']


class DocumentsTestCase(base.BaseTestCase):
    """A test of what generates the documents."""

    def setUp(self):
        super().setUp()
        paths = [str(SOURCE / '_ext'), str(CHECKOUT / 'bench'), *sys.path]
        self.useFixture(fixtures.MonkeyPatch('sys.path', paths))


class ParsersTest(DocumentsTestCase):
    def parsers(self, program):
        import command_parsers

        return dict(command_parsers.of(program))

    def test_each_program_and_command_has_a_parser(self):
        for program in PROJECT['scripts']:
            self.assertIn(program, self.parsers(program))
        managed = self.parsers('trove-ceph-manage')
        self.assertLessEqual({f'trove-ceph-manage {name}' for name in shell.COMMANDS}, set(managed))
        names = PROJECT['entry-points']['openstack.database.v1']
        expected = {f'openstack {name.replace("_", " ")}' for name in names}
        self.assertEqual(expected, set(self.parsers('openstack')))
        self.assertIn('trove-ceph-bench run', self.parsers('trove-ceph-bench'))

    def test_the_service_has_the_options_of_its_libraries(self):
        [parser] = self.parsers('trove-ceph-storage').values()
        options = {name for action in parser._actions for name in action.option_strings}
        self.assertLessEqual({'--config-file', '--config-dir', '--debug', '--log-file'}, options)


class TextTest(DocumentsTestCase):
    def test_each_option_of_each_command_is_described(self):
        import command_parsers
        import command_text

        for program in command_parsers.PROGRAMS:
            parsers = dict(command_parsers.of(program))
            output = '\n'.join(command_text.describe_output_options(parsers.values()))
            for name, parser in parsers.items():
                text = '\n'.join(command_text.describe(name, parser))
                self.assertIn(f'.. program:: {name}\n', text)
                shown = [one for one in parser._actions if one.help != argparse.SUPPRESS]
                for option in (option for action in shown for option in action.option_strings):
                    line = rf'(?m)^\.\. option:: (.+, )?{option}( |,|$)'
                    self.assertRegex(f'{text}\n{output}', line, name)

    def test_examples_and_exit_status_keep_their_lines(self):
        import command_parsers
        import command_text

        parser = dict(command_parsers.of('trove-ceph-manage'))['trove-ceph-manage db']
        text = '\n'.join(command_text.describe('trove-ceph-manage db', parser))
        for expected in (
            '.. rubric:: Examples\n\n.. code-block:: text\n\n',
            '   trove-ceph-manage db sync\n',
            '.. rubric:: Exit status\n\n.. code-block:: text\n\n     0  ',
            "begin with\ntrove\\_ceph\\_. Trove's own",
        ):
            self.assertIn(expected, text)

    def test_options_in_sentences_keep_their_dashes(self):
        import command_text

        for written, expected in (
            ('of --at, and', 'of ``--at``, and'),
            ('"x --help"', '"x ``--help``"'),
            ('a *b* `c` d_e', r'a \*b\* \`c\` d\_e'),
        ):
            self.assertEqual([expected, ''], list(command_text._prose(written)))


class ManualPagesTest(DocumentsTestCase):
    def test_each_program_has_one_from_its_reference(self):
        pages = {
            name: page for page, name, *_ in runpy.run_path(str(SOURCE / 'conf.py'))['man_pages']
        }
        self.assertEqual(set(PROJECT['scripts']), set(pages))
        for name, page in pages.items():
            text = (SOURCE / f'{page}.rst').read_text()
            self.assertIn(f'.. command-reference:: {name}\n', text)
