# SPDX-License-Identifier: Apache-2.0
"""Follow the tenant's tutorial on the lab, and compare what happens with what the page shows."""
