# SPDX-License-Identifier: Apache-2.0
"""Kill services of the lab with SIGKILL at random moments of operations; measure the recovery.

:mod:`operations` has the operations and their settled states, :mod:`plan` draws the rounds,
:mod:`services` kills, :mod:`rounds` runs the rounds, :mod:`report` shows their durations.
"""
