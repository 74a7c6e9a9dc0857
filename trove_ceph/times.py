# SPDX-License-Identifier: Apache-2.0
"""Times as people and programs read them."""

import datetime


def utc_text(time: datetime.datetime) -> str:
    """Return a time in ISO 8601, in UTC and with a ``Z``.

    :param time: without a time zone it is in UTC, as in our tables
    """
    if time.tzinfo is not None:
        time = time.astimezone(datetime.UTC).replace(tzinfo=None)
    return f'{time.isoformat()}Z'
