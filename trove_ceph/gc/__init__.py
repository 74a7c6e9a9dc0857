# SPDX-License-Identifier: Apache-2.0
"""Finding and removing what belongs to nobody any more.

:mod:`seeing` lists what is there, :mod:`claims` who says that something is theirs, and
:mod:`judging` what is left. :mod:`removing` looks again and removes.
"""
