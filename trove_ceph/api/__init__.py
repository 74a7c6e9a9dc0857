# SPDX-License-Identifier: Apache-2.0
"""What Trove's API has no word for, as an extension of it.

:mod:`extension` is what Trove loads, :mod:`rules` has who may do what, :mod:`details` and
:mod:`policies` are its resources. :mod:`cinder_client` lets Trove's own API restore what is in the
vault alone.
"""
