# SPDX-License-Identifier: Apache-2.0
"""Verify that a backup restores: start a real MySQL server on a clone of it.

The clone also shows the GTID position of the backup, before anything is written to the clone.
"""
