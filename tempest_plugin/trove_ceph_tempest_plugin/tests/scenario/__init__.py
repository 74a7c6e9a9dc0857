# SPDX-License-Identifier: Apache-2.0
"""Scenarios of a tenant; those of a class share its database."""
