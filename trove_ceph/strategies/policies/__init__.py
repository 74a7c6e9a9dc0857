# SPDX-License-Identifier: Apache-2.0
"""Taking backups by policy, and deleting those that a policy took and keeps no longer.

:mod:`schedule`, :mod:`retention` and :mod:`choosing` are pure functions; :mod:`running` does what
they say.
"""
