"""Price and danger clocks in one sentence, so that whoever approves has seen them."""

from datetime import UTC, datetime

from outlive.gate.claims import Costs, DangerClock


def costs_sentence(costs: Costs, clocks: tuple[DangerClock, ...]) -> str:
    """Return what the box costs, what goes on billing after the verb, and what the platform does by itself."""
    parts = []
    if costs.per_h is None:
        parts.append("price not known" + (f" ({costs.why_unknown})" if costs.why_unknown else ""))
    else:
        parts.append(f"{costs.per_h:g} {costs.currency}/h".replace(" /h", "/h"))
    if costs.so_far is not None:
        parts.append(f"{costs.so_far:.2f} {costs.currency} so far".replace("  ", " "))
    if costs.still_bills:
        parts.append("goes on billing: " + ", ".join(costs.still_bills))
    parts.extend(_clock(clock) for clock in clocks)
    return "; ".join(parts)


def _clock(clock: DangerClock) -> str:
    if clock.at_s is None:
        return clock.text
    return f"{clock.text} on {datetime.fromtimestamp(clock.at_s, UTC):%Y-%m-%d %H:%M} UTC"
