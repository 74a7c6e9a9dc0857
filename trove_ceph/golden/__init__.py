# SPDX-License-Identifier: Apache-2.0
"""Make golden volumes: initialise MySQL on a new file system, inspect it, and publish it.

:mod:`initialisation` runs ``mysqld --initialize`` in a sandbox, :mod:`disk_file` makes a file with
the file system, and :mod:`build` has the steps that make an image of it.
"""
