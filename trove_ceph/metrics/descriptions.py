# SPDX-License-Identifier: Apache-2.0
"""Descriptions of metrics, from which the metrics and their documentation are made."""

import dataclasses
import enum
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prometheus_client import core


class Kind(enum.StrEnum):
    """The types of metrics that we have."""

    GAUGE = 'gauge'
    COUNTER = 'counter'
    HISTOGRAM = 'histogram'


#: How a series of values is condensed if single values would need the id of an instance as a label.
STATISTICS: Sequence[tuple[str, Callable[[Sequence[float]], float]]] = (
    ('mean', statistics.fmean),
    ('max', max),
)


@dataclasses.dataclass(frozen=True)
class Description:
    """One metric.

    :param name: as it is exported, so that of a counter ends in ``_total``
    :param text: one sentence or two for operators
    :param labels: the names of its labels
    """

    name: str
    text: str
    labels: tuple[str, ...] = ()
    kind: Kind = Kind.GAUGE

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its time series."""
        if self.kind is Kind.HISTOGRAM:
            return tuple(f'{self.name}_{suffix}' for suffix in ('bucket', 'count', 'sum'))
        return (self.name,)

    def gauge(self, values: Mapping[Any, float]) -> core.GaugeMetricFamily:
        """Return a gauge.

        :param values: by the values of its labels, as a tuple in the order of their names
        """
        assert self.kind is Kind.GAUGE
        metric = core.GaugeMetricFamily(self.name, self.text, labels=self.labels)
        for key, value in values.items():
            metric.add_metric([str(one) for one in key], value)
        return metric

    def condensed(self, values: Mapping[Any, Sequence[float]]) -> core.GaugeMetricFamily:
        """Return a gauge with the mean and the maximum of several values; nothing where is none.

        :param values: by the values of its labels but the last one, which is the statistic
        """
        return self.gauge(
            {
                (*key, statistic): compute(each)
                for key, each in values.items()
                for statistic, compute in STATISTICS
                if each
            }
        )
