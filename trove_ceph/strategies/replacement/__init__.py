# SPDX-License-Identifier: Apache-2.0
"""Replace the server of an instance; its volume, its addresses and its id stay.

:mod:`replacement` has the steps. A failover and a resize are replacements.
"""
