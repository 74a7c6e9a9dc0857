# SPDX-License-Identifier: Apache-2.0
"""Run Tempest on the lab and show what it found, in the environment of the instruments."""
