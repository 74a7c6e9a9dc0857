# SPDX-License-Identifier: Apache-2.0
"""The lab's plan of a hyper-converged host, and what of it applies to this machine."""
