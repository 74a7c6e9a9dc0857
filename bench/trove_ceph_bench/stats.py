# SPDX-License-Identifier: Apache-2.0
"""The statistics of repeats, as pure functions. A single repeat has no interval.

Throughput and latency are positive and vary in proportion to their size, so two variants are
compared by the ratio of their geometric means, with an interval that is computed on logarithms
(Fleming and Wallace, "How not to lie with statistics: the correct way to summarize benchmark
results", CACM 29(3), 1986; Georges et al., "Statistically rigorous Java performance evaluation",
OOPSLA 2007, for intervals instead of best or mean values alone).
"""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A value with its confidence interval; ``low`` and ``high`` are None if there is none.

    :param n: number of repeats; for an unpaired ratio the smaller number of the two
    :param method: ``mean``, ``paired`` or ``unpaired``
    """

    value: float
    low: float | None
    high: float | None
    n: int
    method: str

    @property
    def significant(self) -> bool | None:
        """For a ratio: whether its interval excludes 1; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return not self.low <= 1.0 <= self.high


@dataclasses.dataclass(frozen=True)
class Spread:
    """Median and extremes of a few values, for metrics that are far from normally distributed."""

    median: float
    low: float
    high: float
    n: int


def as_dict(statistic: Estimate | Spread | None) -> dict[str, Any] | None:
    """Return an estimate or a spread as JSON data."""
    return None if statistic is None else dataclasses.asdict(statistic)


def mean(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Return the mean with its t interval, ``m ± t(n-1) · s / √n``.

    Source: NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.5.2 "Confidence limits for the
    mean".

    :param values: at least one; a single value has no interval
    """
    center = statistics.fmean(values)
    low, high = _t_interval(center, values, confidence)
    return Estimate(center, low, high, len(values), 'mean')


def spread(values: Sequence[float]) -> Spread:
    """Return the median and the extremes of at least one value."""
    return Spread(statistics.median(values), min(values), max(values), len(values))


def ratio(
    of: Mapping[int, float], to: Mapping[int, float], confidence: float = CONFIDENCE
) -> Estimate | None:
    """Return the ratio ``of / to`` of two variants that were measured in turns.

    Each repeat measured both shortly after one another, so its two values are a pair; the caller
    knows that. If the variants have different repeats, the values are not paired: see
    :func:`unpaired_ratio`.

    :param of: values by the number of the repeat
    :param to: values of the variant to compare with, by the number of the repeat
    :returns: None if there is no value, or one that is not positive and so has no logarithm
    """
    if of.keys() == to.keys():
        return paired_ratio([(of[key], to[key]) for key in of], confidence)
    return unpaired_ratio(list(of.values()), list(to.values()), confidence)


def paired_ratio(
    pairs: Sequence[tuple[float, float]], confidence: float = CONFIDENCE
) -> Estimate | None:
    """Return the geometric mean of the pairs' ratios with the t interval of their logarithms.

    Source: the paired t test (NIST e-Handbook 7.3.1) on ``ln(a) - ln(b)``, transformed back.

    :returns: None as in :func:`ratio`
    """
    if not pairs or not _positive(value for pair in pairs for value in pair):
        return None
    logs = [math.log(of / to) for of, to in pairs]
    center = statistics.fmean(logs)
    return _exp(center, _t_interval(center, logs, confidence), len(logs), 'paired')


def unpaired_ratio(
    of: Sequence[float], to: Sequence[float], confidence: float = CONFIDENCE
) -> Estimate | None:
    """Return the ratio of the geometric means with Welch's interval of their logarithms.

    Source: Welch, "The generalization of Student's problem when several different population
    variances are involved", Biometrika 34, 1947; degrees of freedom by Welch and Satterthwaite
    (NIST e-Handbook 7.3.1).

    :returns: None as in :func:`ratio`
    """
    if not of or not to or not _positive([*of, *to]):
        return None
    logs = [[math.log(value) for value in values] for values in (of, to)]
    center = statistics.fmean(logs[0]) - statistics.fmean(logs[1])
    n = min(len(of), len(to))
    if n < 2:
        return _exp(center, (None, None), n, 'unpaired')
    # The squared standard errors of the two means.
    errors = [statistics.variance(values) / len(values) for values in logs]
    total = sum(errors)
    if total == 0:
        return _exp(center, (center, center), n, 'unpaired')
    freedom = total**2 / sum(
        error**2 / (len(values) - 1) for error, values in zip(errors, logs, strict=True)
    )
    half = _t_quantile(freedom, confidence) * math.sqrt(total)
    return _exp(center, (center - half, center + half), n, 'unpaired')


def _t_interval(
    center: float, values: Sequence[float], confidence: float
) -> tuple[float | None, float | None]:
    if len(values) < 2:
        return None, None
    error = statistics.stdev(values) / math.sqrt(len(values))
    half = _t_quantile(len(values) - 1, confidence) * error
    return center - half, center + half


def _t_quantile(freedom: float, confidence: float) -> float:
    # Importing scipy takes half a second, and not all commands need it.
    from scipy import special

    return float(special.stdtrit(freedom, (1 + confidence) / 2))


def _exp(
    center: float, interval: tuple[float | None, float | None], n: int, method: str
) -> Estimate:
    low, high = (None if end is None else math.exp(end) for end in interval)
    return Estimate(math.exp(center), low, high, n, method)


def _positive(values: Iterable[float]) -> bool:
    return all(value > 0 for value in values)
