# SPDX-License-Identifier: Apache-2.0
"""Warm guests: servers that wait for an instance.

:mod:`keeper` keeps the pools of waiting guests.
"""
