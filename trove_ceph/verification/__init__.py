# SPDX-License-Identifier: Apache-2.0
"""Whether a backup restores, found out by doing it: a real server starts on a clone of it.

The clone also tells the one position that the backup has, before anything was written to it.
"""
