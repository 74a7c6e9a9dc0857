# SPDX-License-Identifier: Apache-2.0
"""What runs in trove-taskmanager.

Trove's option ``taskmanager_manager`` names :mod:`manager`, which delegates to the strategies.
:mod:`factory` creates their dependencies from the configuration. All that depends on the version of
Trove is in :mod:`trove_ceph.trove_adapter`.
"""
