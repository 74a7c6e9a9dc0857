# SPDX-License-Identifier: Apache-2.0
"""The storage service: the only process with a Ceph credential."""
