# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration; the theme and the version come from openstackdocstheme."""

import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, os.path.abspath('../../lab'))
sys.path.insert(0, os.path.abspath('_ext'))

project = 'trove_ceph'
copyright = 'trove_ceph contributors, Apache License 2.0'

extensions = [
    'openstackdocstheme',
    'oslo_config.sphinxext',
    'sphinx.ext.autodoc',
    'doctor_checks',
    'host_settings',
    'alert_tables',
    'metric_tables',
    'state_machines',
    'sphinx.ext.graphviz',
]

html_theme = 'openstackdocs'
openstackdocs_auto_name = False
# The project has no page in OpenStack's bug tracker or site map to link to.
openstackdocs_bug_project = ''
openstackdocs_use_storyboard = False
html_theme_options = {'show_other_versions': False}

# SVG stays sharp at any size.
graphviz_output_format = 'svg'

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
