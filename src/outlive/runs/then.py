"""``run --then``: what becomes of the box after the end, and what that sets going."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlive.ledger import Run
from outlive.runs.home import Home
from outlive.runs.place import Place

if TYPE_CHECKING:
    from outlive.runs.down_result import DownResult


def sentence(place: Place, spec: dict[str, Any]) -> str:
    """Return what was asked to follow the end, with the clocks that it starts; an empty string for ``keep``."""
    do = spec["then"]["do"]
    if do == "pause":
        stop = place.platform.self_stop
        label = place.platform.verb(stop.verb).label.said() if stop is not None else "its own stop"
        text = f"after the end the box parks itself ({label}), unless somebody still works on it"
        for clock in place.platform.danger_clocks:
            if clock.starts_when == "box-stopped" and clock.after_hours:
                text += f"; {clock.after_hours / 24:g} days after that: {clock.consequence.said()}"
        return text
    if do == "down":
        return (
            f"after the end `outlive watch` ends the box, with the word of `outlive approve down {place.name} "
            "--when-proved`; no key that could do it goes to the box"
        )
    return ""


def after_end(home: Home, record: Run, status: dict[str, Any]) -> DownResult | None:
    """Carry out ``--then down`` of an ended run, with a standing approval and never without; None for other runs.

    Nobody is asked anything: with no approval, or one that something voids, the result says so and
    the box stays. Raises what ``down`` raises.
    """
    if (status.get("then") or {}).get("do") != "down" or not status["ended"]:
        return None
    from outlive.runs.down import down

    return down(home, record.box)
