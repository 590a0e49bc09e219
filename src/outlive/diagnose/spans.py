"""Times, amounts and numbers in the words of an alarm's sentence."""

import math
from typing import Any, Iterable, Optional


def as_float(value: Any) -> Optional[float]:
    """Return a point's value as a float, nan and inf included, or None when it is no number."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)  # wire points carry "nan" and "inf" as text
    except (TypeError, ValueError, OverflowError):
        return None


def word(value: Optional[float]) -> Any:
    """Return the number, or "nan", "inf", "-inf" where JSON has none."""
    if value is None or math.isfinite(value):
        return value
    return "nan" if value != value else ("inf" if value > 0 else "-inf")


def median(values: Iterable[float]) -> float:
    """Return the median of at least one value."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0


def span(seconds: float) -> str:
    """Return a time in words."""
    if seconds < 120:
        return "%d s" % seconds
    if seconds < 7200:
        return "%d min" % (seconds / 60)
    return "%.1f h" % (seconds / 3600)


def amount(count: float, what: str) -> str:
    """Return a count of ``bytes`` with its unit, or of anything else as it is."""
    if what != "bytes":
        return "%d" % count
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return "%.3g %s" % (count, unit)
        count /= 1000.0
    return "%.4g TB" % count
