# SPDX-License-Identifier: Apache-2.0
"""Format numbers for readers: three significant digits, thin spaces, a dash for "unknown"."""

import math
from collections.abc import Mapping
from typing import Any

DIGITS = 3
UNKNOWN = '\u2013'
#: Separates groups of three digits and numbers from units without a line break.
THIN = '\u202f'

_BINARY = ('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')


def number(value: float | None, digits: int = DIGITS) -> str:
    """Return a number with a few significant digits, without an exponent."""
    if value is None:
        return UNKNOWN
    decimals = _decimals(value, digits)
    # A negative count of decimals rounds digits before the point.
    rounded = round(value, decimals)
    return f'{rounded:,.{max(decimals, 0)}f}'.replace(',', THIN)


def count(value: float | None) -> str:
    """Return a whole number, unrounded."""
    return UNKNOWN if value is None else f'{round(value):,}'.replace(',', THIN)


def size(value: float | None) -> str:
    """Return a number of bytes in the binary unit that suits it."""
    if value is None:
        return UNKNOWN
    power = 0
    while abs(value) >= 1024 and power < len(_BINARY) - 1:
        value /= 1024
        power += 1
    shown = count(value) if value == round(value) else number(value)
    return f'{shown}{THIN}{_BINARY[power]}'


def percent(share: float | None) -> str:
    """Return a share as a percentage."""
    return UNKNOWN if share is None else f'{number(share * 100)}{THIN}%'


def in_unit(value: float | None, unit: str) -> str:
    """Return a number without its unit, which the heading names; bytes and shares carry theirs."""
    if unit == 'bytes':
        return size(value)
    if unit == 'share':
        return percent(value)
    return number(value)


def figure(found: Mapping[str, Any] | None, unit: str = '') -> str:
    """Return a mean with its interval, or a median with its extremes."""
    return spread(found) if found and 'median' in found else plus_minus(found, unit)


def plus_minus(estimate: Mapping[str, Any] | None, unit: str = '') -> str:
    """Return an estimate as ``value ± half of its interval``; the value alone without one."""
    if not estimate:
        return UNKNOWN
    value, low, high = estimate['value'], estimate['low'], estimate['high']
    if low is None or unit in ('bytes', 'share'):
        return in_unit(value, unit)
    return f'{number(value)} ± {number((high - low) / 2, digits=2)}'


def interval(estimate: Mapping[str, Any] | None) -> str:
    """Return the ends of an interval as ``low to high``; empty without one."""
    if not estimate or estimate['low'] is None:
        return ''
    return f'{number(estimate["low"])} to {number(estimate["high"])}'


def spread(found: Mapping[str, Any] | None) -> str:
    """Return a median with its extremes, as ``87.1 (60.2 to 412)``."""
    if not found:
        return UNKNOWN
    if found['n'] == 1:
        return number(found['median'])
    return f'{number(found["median"])} ({number(found["low"])} to {number(found["high"])})'


def _decimals(value: float, digits: int) -> int:
    if value == 0 or not math.isfinite(value):
        return 0
    # Rounding may carry: 9.996 becomes 10.0, not 10.00.
    magnitude = math.floor(math.log10(abs(value)))
    if round(abs(value), digits - 1 - magnitude) >= 10 ** (magnitude + 1):
        magnitude += 1
    return digits - 1 - magnitude
