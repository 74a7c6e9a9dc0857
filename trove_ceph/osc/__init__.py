# SPDX-License-Identifier: Apache-2.0
"""Commands for ``openstack database backup``, besides those of python-troveclient.

They need osc-lib, python-troveclient and what those need, and nothing else of this package.
"""
