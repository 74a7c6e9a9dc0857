# SPDX-License-Identifier: Apache-2.0
"""The taskmanager's calls to a guest that waits for an instance.

Trove's serializer keeps the messages secret. It accepts plain text as well, so it authenticates
nothing: each message is also signed with a key that only this guest and the control plane have.
"""
