# SPDX-License-Identifier: Apache-2.0
"""Configuration options, one module per concern; see :mod:`trove_ceph.conf.opts`."""
