# SPDX-License-Identifier: Apache-2.0
"""Take backups by policy, and delete those that a policy no longer keeps.

:mod:`schedule`, :mod:`retention` and :mod:`policy_match` are pure functions; :mod:`scheduler` acts
on what they return.
"""
