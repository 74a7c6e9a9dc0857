# SPDX-License-Identifier: Apache-2.0
"""The lab's main job: a tenant creates and uses a database; the report shows its placement."""
