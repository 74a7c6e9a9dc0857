# SPDX-License-Identifier: Apache-2.0
"""The lab's main job: a tenant makes a database, uses it, and is shown where it lies."""
