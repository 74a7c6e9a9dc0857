# SPDX-License-Identifier: Apache-2.0
"""What differs between the supported releases of Trove, and whether the installed one fits.

A new release of Trove adds its differences here. The guest agent uses this package too, so it
imports nothing of the control plane.
"""
