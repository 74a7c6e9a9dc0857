# SPDX-License-Identifier: Apache-2.0
"""Commands for ``openstack database``, in addition to those of python-troveclient.

They need osc-lib, python-troveclient and their dependencies, and no other part of this package.
"""
