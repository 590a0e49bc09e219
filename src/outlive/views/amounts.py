"""Numbers as people read them: bytes, spans of time, ages, money. One way of writing each, everywhere."""

from __future__ import annotations

import math
from collections.abc import Sequence

UNKNOWN = "unknown"
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_BARS = " ▁▂▃▄▅▆▇█"
_ASCII_BARS = " .:-=+*#%@"[1:]


def size(number_bytes: float | None) -> str:
    """Return ``1.5 GB`` (powers of 1000, as disks are sold), ``unknown`` for None."""
    if number_bytes is None:
        return UNKNOWN
    value, unit = float(number_bytes), 0
    while abs(value) >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 or value >= 99.5 else f"{value:.1f} {_UNITS[unit]}"


def count(number: float | None) -> str:
    """Return ``12.3k`` for large numbers, ``unknown`` for None."""
    if number is None:
        return UNKNOWN
    for unit, step in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= step * 10:
            return f"{number / step:.4g}{unit}"
    return f"{number:g}"


def span(seconds: float | None) -> str:
    """Return ``45 s``, ``12 min``, ``3 h 05 min``, ``2 d 4 h``; ``unknown`` for None."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    whole = max(0, round(seconds))
    if whole < 100:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def ago(seconds: float | None) -> str:
    """Return ``12 min ago``; a clock that ran backwards gives ``just now``, never a negative age."""
    if seconds is None:
        return "at an unknown time"
    return "just now" if seconds < 2 else f"{span(seconds)} ago"


def money(amount: float, currency: str) -> str:
    """Return ``12.40 USD``."""
    return f"{amount:.2f} {currency}"


def number(value: float | None) -> str:
    """Return a metric's value in few digits."""
    if value is None:
        return "-"
    if isinstance(value, str) or not math.isfinite(value):
        return str(value)
    return f"{value:.4g}"


def share(part: float | None, whole: float | None) -> str:
    """Return ``41%``, "" when it cannot be known."""
    return f"{100 * part / whole:.0f}%" if part is not None and whole else ""


def bar(done: float | None, total: float | None, columns: int, *, plain: bool = False) -> str:
    """Return a bar of that many columns; without a total it is empty."""
    full, empty = ("#", ".") if plain else ("█", "░")
    if not total or done is None:
        return empty * columns
    filled = max(0, min(columns, round(columns * done / total)))
    return full * filled + empty * (columns - filled)


def sparkline(values: Sequence[float], columns: int, *, plain: bool = False) -> str:
    """Return the course of a series in at most that many columns; what is not finite shows as ``!``."""
    bars = _ASCII_BARS if plain else _BARS[1:]
    if not values or columns <= 0:
        return ""
    if len(values) > columns:  # the last of each bucket: a peak at the end must be seen
        values = [values[(i + 1) * len(values) // columns - 1] for i in range(columns)]
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return "!" * len(values)
    low, high = min(finite), max(finite)
    scale = (len(bars) - 1) / (high - low) if high > low else 0.0
    return "".join(bars[round((v - low) * scale)] if math.isfinite(v) else "!" for v in values)
