# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration of the release notes."""

project = 'trove_ceph release notes'
copyright = 'trove_ceph contributors, Apache License 2.0'
extensions = ['openstackdocstheme', 'reno.sphinxext']
html_theme = 'openstackdocs'
openstackdocs_auto_name = False
openstackdocs_bug_project = ''
html_theme_options = {
    'show_other_versions': False,
    'display_badge': False,
    'analytics_tracking_code': '',
}
# The license of the pages, as in the documents.
templates_path = ['../../doc/source/_templates']
