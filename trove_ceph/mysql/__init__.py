# SPDX-License-Identifier: Apache-2.0
"""MySQL on this machine: settings that fit it, statements, and a server of one's own."""
