# SPDX-License-Identifier: Apache-2.0
"""Warm guests: servers that wait for an instance.

:mod:`bind` turns a waiting guest into the server of an instance.
"""
