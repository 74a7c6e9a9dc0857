# SPDX-License-Identifier: Apache-2.0
"""The benchmark: sysbench and fio runs, timed operations, and a report with its caveats."""
