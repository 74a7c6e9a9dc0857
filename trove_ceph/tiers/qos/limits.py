# SPDX-License-Identifier: Apache-2.0
"""What a volume is promised: a pure function of its tier and its size.

A rate for each GiB, not below a floor and not above a cap, is how public clouds sell volumes, whose
classes the tiers follow ("Amazon EBS volume types": 3 IOPS for each GiB, 100 at least and 16 000 at
most, for gp2). Cinder computes its front-end limits alike (``total_iops_sec_per_gb``,
``…_per_gb_min``, ``total_iops_sec_max``), so a tier may change from one kind to the other.

librbd takes one token from a bucket for each request of the guest, whatever its size, reads and
writes together; flushes are free. Tokens come every 10 ms (``storage.ceph.limits``; librbd's own
50 ms are too coarse), and the bucket holds those of one second (TokenBucketThrottle.cc, with no
burst set): a volume that was idle may do one second's worth at once, and over any longer time not
more than its rate. Bursts are left at that.
"""

from oslo_utils import units

from trove_ceph.storage import image_types
from trove_ceph.tiers import tier_types

_MIB_PER_GIB = 1024


def of_volume(tier: tier_types.Tier, size_gib: int) -> image_types.Qos:
    """Return the limits of a volume: ``floor <= per_gib * size <= cap``, and the tier's throughput.

    A promise of less than one operation per second is one: none would mean no limit.
    """
    return image_types.Qos(
        iops=max(1, tier.iops.volume_iops(size_gib * _MIB_PER_GIB)) if tier.iops else 0,
        bytes_per_sec=(tier.throughput_mib_per_sec or 0) * units.Mi,
    )
