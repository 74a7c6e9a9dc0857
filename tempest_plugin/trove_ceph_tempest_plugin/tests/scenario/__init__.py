# SPDX-License-Identifier: Apache-2.0
"""Journeys of a tenant, each on a database that it shares with its class."""
