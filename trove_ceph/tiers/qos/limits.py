# SPDX-License-Identifier: Apache-2.0
"""The limits of a volume: a pure function of its tier and its size.

The formula is a rate per GiB with a floor and a cap, as public clouds use it ("Amazon EBS volume
types": 3 IOPS per GiB, at least 100 and at most 16 000, for gp2). Cinder computes its front-end
limits in the same way (``total_iops_sec_per_gb``, ``…_per_gb_min``, ``total_iops_sec_max``), so a
tier may change from one kind to the other.

librbd takes one token from a bucket for each request of the guest, independent of its size, with
reads and writes in one bucket; flushes are free. Tokens are added every 10 ms
(``storage.ceph.limits``; librbd's default of 50 ms is too coarse), and the bucket holds the tokens
of one second (TokenBucketThrottle.cc, with no burst set). So an idle volume may do the requests of
one second at once, and over any longer time at most its rate. No larger bursts are configured.
"""

from oslo_utils import units

from trove_ceph.storage import image_types
from trove_ceph.tiers import tier_types

_MIB_PER_GIB = 1024


def of_volume(tier: tier_types.Tier, size_gib: int) -> image_types.Qos:
    """Return the limits of a volume: ``floor <= per_gib * size <= cap``, and the tier's throughput.

    The least limit is one operation per second, because zero means no limit.
    """
    return image_types.Qos(
        iops=max(1, tier.iops.volume_iops(size_gib * _MIB_PER_GIB)) if tier.iops else 0,
        bytes_per_sec=(tier.throughput_mib_per_sec or 0) * units.Mi,
    )
