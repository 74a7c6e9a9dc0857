# SPDX-License-Identifier: Apache-2.0
"""Extensions of Trove's guest agent, which run in the virtual machine of the database."""
