# SPDX-License-Identifier: Apache-2.0
"""What runs in trove-taskmanager.

:mod:`manager` is named by Trove's option ``taskmanager_manager``, and delegates to the strategies.
What differs from one version of Trove to the next is in :mod:`trove_tables`, :mod:`trove_backups`,
:mod:`trove_instances`, :mod:`restored_instances` and :mod:`nudging`.
"""
