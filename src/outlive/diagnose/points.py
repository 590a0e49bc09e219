"""Points of metrics as they travel. Apart from the parsers, whose expressions take time to make ready."""

import math
from typing import Any, Dict

from .spans import word

Point = Dict[str, Any]


def wire_point(point: Point) -> Point:
    """Return the point for JSON: floats that are not finite become "nan", "inf" and "-inf"."""
    return {k: word(v) if isinstance(v, float) else v for k, v in point.items()}


def point_from_wire(data: Point) -> Point:
    """Undo ``wire_point``."""
    back = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
    return {k: back.get(v, v) if isinstance(v, str) and k != "source" else v for k, v in data.items()}
