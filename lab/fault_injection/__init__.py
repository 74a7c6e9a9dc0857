# SPDX-License-Identifier: Apache-2.0
"""Kill services of the lab with SIGKILL at random instants of operations; see what becomes of them.

:mod:`operations` has the operations and when each is settled, :mod:`plan` draws the
rounds, :mod:`services` kills, :mod:`rounds` runs them, :mod:`report` shows what they took.
"""
