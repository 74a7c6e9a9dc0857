# SPDX-License-Identifier: Apache-2.0
"""An extension of Trove's API with the requests and details that Trove lacks.

Trove loads :mod:`extension`. :mod:`rules` declares the default policies; :mod:`details`,
:mod:`policies`, :mod:`failovers`, :mod:`failover_policies`, :mod:`replication` and
:mod:`replication_policies` are the resources.
"""
