# SPDX-License-Identifier: Apache-2.0
import logging

# Many tests make things fail on purpose. Without a handler Python prints what is logged of it on
# stderr, and a failure of the tests would be hard to find between all that.
logging.getLogger().addHandler(logging.NullHandler())
