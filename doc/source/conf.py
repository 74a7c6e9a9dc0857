# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration; the theme and the version come from openstackdocstheme."""

import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, os.path.abspath('../../lab'))
sys.path.insert(0, os.path.abspath('../../bench'))
sys.path.insert(0, os.path.abspath('_ext'))

project = 'trove_ceph'
copyright = 'trove_ceph contributors, Apache License 2.0'

extensions = [
    'openstackdocstheme',
    'oslo_config.sphinxext',
    'sphinx.ext.autodoc',
    'command_reference',
    'doctor_checks',
    'host_settings',
    'alert_tables',
    'metric_tables',
    'policy_rules',
    'state_machines',
    'sphinx.ext.graphviz',
]

html_theme = 'openstackdocs'
openstackdocs_auto_name = False
# The project has no page in OpenStack's bug tracker or site map to link to.
openstackdocs_bug_project = ''
openstackdocs_use_storyboard = False
html_theme_options = {
    'show_other_versions': False,
    # Both would have readers' browsers ask sites that know nothing of this project.
    'display_badge': False,
    'analytics_tracking_code': '',
}
# In place of the theme's text, by which pages are under the license of OpenStack's manuals.
templates_path = ['_templates']

# SVG stays sharp at any size.
graphviz_output_format = 'svg'

# The manual page of each program, with its section: (page, program, summary, authors, section).
man_pages = [
    (f'reference/commands/{name}', name, summary, [], section)
    for name, summary, section in (
        ('trove-ceph-bench', 'measure MySQL servers and the operations on them', 1),
        ('trove-ceph-guestagent', "bring the data volume into service, then be Trove's agent", 8),
        ('trove-ceph-image', 'build and check guest images', 8),
        ('trove-ceph-manage', 'manage databases on Ceph', 8),
        ('trove-ceph-storage', 'serve what needs a Ceph key', 8),
    )
]

pygments_style = 'native'
autodoc_member_order = 'bysource'


def _unpack_results(app, error):
    """Unpack the raw results of benchmarks beside the pages."""
    if error or app.builder.format != 'html':
        return
    for archive in sorted((Path(app.srcdir).parent / 'results').glob('*.tar.xz')):
        shutil.unpack_archive(archive, Path(app.outdir) / 'raw')


def setup(app):
    app.connect('build-finished', _unpack_results)
