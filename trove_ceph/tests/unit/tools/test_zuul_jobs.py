# SPDX-License-Identifier: Apache-2.0
"""The jobs of Zuul name environments, playbooks and commands that exist."""

import configparser
from pathlib import Path

import yaml
from oslotest import base

import trove_ceph

CHECKOUT = Path(trove_ceph.__file__).parent.parent


def read(name):
    return yaml.safe_load((CHECKOUT / 'zuul.d' / name).read_text())


def job_vars(job):
    return job.get('vars', {})


class ZuulJobsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        found = read('jobs.yaml')
        self.jobs = {one['job']['name']: one['job'] for one in found if 'job' in one}
        self.nodesets = {one['nodeset']['name'] for one in found if 'nodeset' in one}

    def test_the_project_runs_jobs_that_are_defined(self):
        (project,) = read('project.yaml')
        pipelines = {
            name: {job for job in content['jobs'] if job.startswith('trove-ceph-')}
            for name, content in project['project'].items()
        }
        self.assertEqual({'check', 'gate', 'periodic'}, set(pipelines))
        self.assertEqual(pipelines['check'], pipelines['gate'])
        self.assertEqual(set(self.jobs), pipelines['check'] | pipelines['periodic'])
        self.assertEqual(set(), pipelines['check'] & pipelines['periodic'])

    def test_other_versions_of_ceph_have_a_root_file_system(self):
        versions = {job_vars(job)['ceph'] for job in self.jobs.values() if 'ceph' in job_vars(job)}
        self.assertEqual({18, 20}, versions)
        builder = (CHECKOUT / 'trove_ceph/imagebuild/test_root.py').read_text()
        for version in versions:
            self.assertRegex(builder, rf'SUITES = .*\b{version}: "')

    def test_environments_of_tox_exist(self):
        tox = configparser.ConfigParser()
        tox.read(CHECKOUT / 'tox.ini')
        environments = {
            job_vars(job)['tox_envlist']
            for job in self.jobs.values()
            if 'tox_envlist' in job_vars(job)
        }
        self.assertEqual({'py3', 'py3-trove25', 'mypy'}, environments)
        sections = [name.removeprefix('testenv:') for name in tox.sections()]
        for environment in environments:
            # py3 has no section of its own.
            self.assertIn(environment, (*tox['tox']['envlist'].split(','), *sections))

    def test_playbooks_and_nodes_exist(self):
        for name, job in self.jobs.items():
            for key in ('run', 'post-run'):
                if key in job:
                    path = CHECKOUT / job[key]
                    self.assertTrue(path.is_file(), f'{name}: {path}')
                    (play,) = yaml.safe_load(path.read_text())
                    self.assertEqual('all', play['hosts'])
            if 'nodeset' in job:
                self.assertIn(job['nodeset'], self.nodesets)

    def test_playbooks_run_what_the_checkout_has(self):
        (play,) = yaml.safe_load((CHECKOUT / 'playbooks/functional/run.yaml').read_text())
        (task,) = play['tasks']
        script, *_ = task['ansible.builtin.command']['cmd'].split()
        self.assertTrue((CHECKOUT / script).is_file())
        (play,) = yaml.safe_load((CHECKOUT / 'playbooks/lab/run.yaml').read_text())
        makefile = (CHECKOUT / 'Makefile').read_text()
        for task in play['tasks']:
            make, target, *_ = task['ansible.builtin.command']['cmd'].split()
            self.assertEqual('make', make)
            self.assertIn(f'\n{target}:', makefile)
