# SPDX-License-Identifier: Apache-2.0
"""MySQL on this host: computed settings, SQL helpers, and a managed mysqld process."""
