# SPDX-License-Identifier: Apache-2.0
import logging

import hypothesis

# Many tests make things fail on purpose. Without a handler Python prints what is logged of it on
# stderr, and a failure of the tests would be hard to find between all that.
logging.getLogger().addHandler(logging.NullHandler())

# In a new checkout the first example takes seconds, since Hypothesis reads the whole source first.
hypothesis.settings.register_profile(
    'trove_ceph', deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile('trove_ceph')
