# SPDX-License-Identifier: Apache-2.0
import collections
import html.parser
import json
import random
import re
import tempfile
import urllib.parse
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph.tests.unit.bench import sample
from trove_ceph_bench import plan, report, results

VOID = {'meta', 'br', 'link', 'img', 'hr', 'input'}


class Page(html.parser.HTMLParser):
    """The elements of a page; raise ValueError for tags that are not closed in order."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.inside = collections.defaultdict(list)
        self._open = []
        self.feed(text)
        self.close()
        if self._open:
            raise ValueError(f'never closed: {self._open}')

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        for number, (_, identifier) in enumerate(self._open):
            self.inside[identifier, number].append((tag, attributes))
        if tag not in VOID:
            self._open.append((tag, len(self.elements) - 1))

    def handle_startendtag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))

    def handle_endtag(self, tag):
        opened, _ = self._open.pop()
        if opened != tag:
            raise ValueError(f'</{tag}> closes <{opened}> in line {self.getpos()[0]}')

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def within(self, tag):
        """Yield the names of the descendants of each element of a tag."""
        for (identifier, _), children in self.inside.items():
            if self.elements[identifier][0] == tag:
                yield [name for name, _ in children]


class ReportTest(base.BaseTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        path = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        before = sample.load_store(path / 'before', workloads=['write'], scale=0.8)
        cls.stores = {
            'loads': sample.load_store(path / 'loads', workloads=['write']),
            'operations': sample.operation_store(path / 'operations'),
        }
        cls.texts, cls.pages = {}, {}
        for name, store in cls.stores.items():
            index = report.write(store, before if name == 'loads' else None)
            cls.texts[name] = index.read_text()
            cls.pages[name] = Page(cls.texts[name])

    def _written(self, name, suffix):
        return (self.stores[name].path / 'report' / f'report.{suffix}').read_text()

    def test_three_files(self):
        directory = self.stores['loads'].path / 'report'
        self.assertEqual(
            {'index.html', 'report.json', 'report.md'}, {path.name for path in directory.iterdir()}
        )
        self.assertEqual('tuning', json.loads(self._written('loads', 'json'))['plan']['name'])

    def test_markdown_tables_have_no_blank_lines(self):
        for name in self.stores:
            blocks = re.split(r'\n\s*\n', self._written(name, 'md'))
            tables = [block.splitlines() for block in blocks if block.startswith('|')]
            self.assertGreater(len(tables), 3)
            for lines in tables:
                self.assertGreater(len(lines), 2)
                self.assertRegex(lines[1], r'^(\| -+:? )+\|$')
                self.assertEqual({lines[0].count('|')}, {line.count(' |') + 1 for line in lines})

    def test_page_loads_no_external_resources(self):
        for name, page in self.pages.items():
            self.assertNotRegex(self.texts[name], r'(?i)(https?:)?//[a-z]')
            self.assertNotRegex(self.texts[name], r'url\((?!#)|@import')
            tags = {tag for tag, _ in page.elements}
            self.assertEqual(set(), tags & {'script', 'link', 'img', 'iframe', 'object'})

    def test_links_resolve(self):
        for name, page in self.pages.items():
            identifiers = {attributes.get('id') for _, attributes in page.elements}
            for link in page.all('a'):
                target = urllib.parse.unquote(link['href'])
                if target.startswith('#'):
                    self.assertIn(target[1:], identifiers)
                else:
                    path = self.stores[name].path / 'report' / target
                    self.assertTrue(path.exists(), target)

    def test_identifiers_are_unique_and_references_resolve(self):
        for name, page in self.pages.items():
            identifiers = [
                attributes['id'] for _, attributes in page.elements if 'id' in attributes
            ]
            self.assertEqual(len(identifiers), len(set(identifiers)))
            used = re.findall(r'url\(#([^)]+)\)', self.texts[name])
            used += [each['href'][1:] for each in page.all('use')]
            for _, attributes in page.elements:
                for key in ('aria-labelledby', 'aria-describedby'):
                    used += attributes.get(key, '').split()
            self.assertEqual(set(), set(used) - set(identifiers))

    def test_every_table_has_a_caption_and_headings_in_a_scroller(self):
        for page in self.pages.values():
            tables = list(page.within('table'))
            self.assertGreater(len(tables), 3)
            for children in tables:
                self.assertEqual(1, children.count('caption'))
                self.assertIn('thead', children)
            for heading in page.all('th'):
                self.assertIn(heading['scope'], ('col', 'row', 'rowgroup'))
            scrollers = [each for each in page.all('div') if each.get('class') == 'scroll']
            self.assertEqual(len(tables), len(scrollers))

    def test_every_plot_has_a_title_and_a_description(self):
        for page in self.pages.values():
            plots = page.all('svg')
            self.assertGreater(len(plots), 3)
            for attributes, children in zip(plots, page.within('svg'), strict=True):
                self.assertEqual('img', attributes['role'])
                self.assertEqual(['title', 'desc'], children[:2])
                self.assertIn('text', children)

    def test_plots_use_the_colours_and_the_font_of_the_page(self):
        plots = ''.join(re.findall(r'<svg.*?</svg>', self.texts['loads'], re.DOTALL))
        self.assertEqual([], re.findall(r'#[0-9a-f]{6}\b', plots))
        self.assertNotIn('DejaVu', plots)
        for variable in ('--v0', '--v1', '--v2', '--text', '--grid', '--sans'):
            self.assertIn(f'var({variable})', plots)

    def test_supports_phones_and_dark_mode(self):
        text = self.texts['loads']
        self.assertIn('name="viewport" content="width=device-width, initial-scale=1"', text)
        self.assertIn('prefers-color-scheme: dark', text)
        self.assertIn('<div class="narrow"><svg', text)

    def test_verdict_shows_ratio_interval_and_significance(self):
        text = self.texts['loads']
        self.assertIn('ours: faster than stock in 2 of 2 comparisons', text)
        self.assertRegex(text, r'<td class="n better up">1\.\d\d <small>1\.\d+ to 1\.\d+, faster')
        self.assertRegex(self.texts['operations'], r'<td class="n better down">0\.\d+')

    def test_phases_of_operations(self):
        self.assertRegex(
            self.texts['operations'],
            r'(?s)<caption id="table-phases-caption">.*>request</td>\s*<td class="n[^>]*>0\.8',
        )
        self.assertNotIn('table-phases', self.texts['loads'])

    def test_sections_without_content_are_omitted(self):
        headings = {name: re.findall(r'<h2>(.*?)</h2>', text) for name, text in self.texts.items()}
        loads = [
            'Verdict',
            'Sweep over threads',
            'Timeline',
            'Latency',
            'Commit gaps',
            'The storage below',
            'Processors',
            'Comparison with another folder',
            'Reference architectures',
            'Full disclosure',
            'Raw files',
        ]
        self.assertEqual(loads, headings['loads'])
        self.assertEqual(
            ['Verdict', 'Operations by data size', *loads[-2:]], headings['operations']
        )

    def test_markdown_has_the_same_tables(self):
        for name, text in self.texts.items():
            captions = re.findall(
                r'<caption id="(?!table-settings|table-runs)[^"]*"><span>(.*?)</span>', text
            )
            titles = re.findall(r'^## (.*)$', self._written(name, 'md'), re.MULTILINE)
            self.assertEqual(captions, titles)

    def test_markdown_tables_are_rectangular(self):
        for name in self.stores:
            for block in self._written(name, 'md').split('\n## ')[1:]:
                rows = [line for line in block.splitlines() if line.startswith('|')]
                self.assertGreater(len(rows), 2)
                self.assertEqual(1, len({row.count(' | ') for row in rows if '---' not in row}))

    def test_a_second_report_replaces_the_first(self):
        report.write(self.stores['operations'])
        text = (self.stores['operations'].path / 'report' / 'index.html').read_text()
        self.assertEqual(self.texts['operations'], text)


class IncompleteResultsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.path = Path(self.useFixture(fixtures.TempDir()).path) / 'r'

    def _page(self, store):
        text = report.write(store).read_text()
        return text, Page(text)

    def test_nothing_measured(self):
        text, _ = self._page(results.Store(self.path).create('name: x\n'))
        self.assertIn('No measurements', text)

    def test_one_repeat_of_one_variant(self):
        store = results.Store(self.path).create('name: x\n')
        config = sample.load_config()
        bare = {'committer': None, 'rbd': None, 'seconds': [], 'events': [], 'cpu': {}}
        store.write(0, config, {}, sample.load_run(config, random.Random(0)) | bare)
        text, _ = self._page(store)
        self.assertIn('One repeat: there is no interval', text)
        self.assertNotIn('Timeline', text)
        self.assertNotIn('Commit gaps', text)

    def test_instances_volumes_and_seconds_without_transactions(self):
        store = results.Store(self.path).create('name: x\n')
        figures = {'avg': 0.8, 'p50': 0.7, 'p95': 1.0, 'p99': 2.2, 'p99.9': 4.0, 'max': 9.0}
        job = {'iops': 1234.5, 'mib_s': 19.2, 'latency_ms': figures, 'flush_ms': None}
        for instances in (1, 2):
            config = sample.load_config() | {'instances': instances}
            run = sample.load_run(config, random.Random(0)) | {'fio': {'randread': job}}
            run['seconds'][3] |= {'tps': 0.0, 'latency_ms': {}}
            store.write(0, config, {}, run)
        text, _ = self._page(store)
        self.assertIn('TPS for each instance', text)
        self.assertIn('The volume without MySQL, by fio', text)

    def test_names_are_escaped(self):
        plan = 'name: x\ndescription: "<script>alert(1)</script> a | b"\n'
        store = results.Store(self.path).create(plan)
        config = sample.load_config()
        warning = {'warnings': ['<b>bold</b>']}
        store.write(0, config, {}, sample.load_run(config, random.Random(0)) | warning)
        text, page = self._page(store)
        self.assertEqual([], page.all('script') + page.all('b'))
        self.assertIn('&lt;b&gt;bold', text)

    def test_operations_without_costs(self):
        store = results.Store(self.path).create('name: x\n')
        for size in (1, 2):
            config = sample.operation_config(data_mib=size)
            bare = {'cost': dict.fromkeys(plan.COSTS), 'writer_tps': None}
            run = sample.operation_run(config, random.Random(0)) | bare | {'committer': None}
            store.write(0, config, {}, run)
        text, _ = self._page(store)
        self.assertIn('wall time over the size of the data', text)
        self.assertNotIn('space over the size', text)
        headings = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', text)
        self.assertIn('Succeeded', headings)
        measured = {'Space', 'Moved', 'Gap ratio', 'Commits/s before and during', 'Lost commits'}
        self.assertEqual(set(), measured & set(headings))

    def test_operations_that_interrupt_the_service(self):
        store = results.Store(self.path).create('name: x\n')
        config = sample.operation_config()
        run = sample.operation_run(config, random.Random(0))
        store.write(0, config, {}, run | {'cost': {'out_of_service_ms': 521, 'lost_commits': 0}})
        text, _ = self._page(store)
        (row,) = re.findall(r'(?s)<tr[^>]*>(?:(?!</tr>).)*521.*?</tr>', text)
        self.assertRegex(row, r'(?s)521.*<td[^>]*>0<')
        headings = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', text)
        self.assertIn('Out of service, ms', headings)
        self.assertIn('Lost commits', headings)
