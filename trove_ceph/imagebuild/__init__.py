# SPDX-License-Identifier: Apache-2.0
"""Builds the MySQL container image and the guest image, without a container daemon on the host."""
