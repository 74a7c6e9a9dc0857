# SPDX-License-Identifier: Apache-2.0
"""What runs inside the database virtual machine, next to Trove's own guest agent."""
