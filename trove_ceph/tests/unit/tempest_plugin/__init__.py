# SPDX-License-Identifier: Apache-2.0
"""Tests of the Tempest plugin's own decisions; its scenarios need a cloud."""
