# SPDX-License-Identifier: Apache-2.0
"""Hold a live cloud against all that the operations rely on.

:mod:`sources` reads facts of Ceph, of OpenStack, of Trove and of configuration files. The checks
are pure functions of them, grouped by system, and :mod:`checks` lists them all.
"""
