# SPDX-License-Identifier: Apache-2.0
"""Tests of the Tempest plugin's helpers; its scenarios need a cloud."""
