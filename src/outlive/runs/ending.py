"""What the platform's facts and the ledger say about ending a box: which verb, what it spares, costs, timers."""

from __future__ import annotations

import posixpath

from outlive import errors
from outlive.gate import Costs, DangerClock, Tier
from outlive.platforms.model import Platform, Verb
from outlive.probes.disk import disk
from outlive.runs.place import Place
from outlive.wire.clock import wall_s
from outlive.wire.names import DIR


def action_of(platform: Platform, action: str | None = None, purge: bool = False) -> tuple[str, Verb | None]:
    """Return (the gate's action, the platform's verb) that ``down`` means. Raises UsageError, UnknownName."""
    if purge:
        if action:
            raise errors.UsageError("--purge deletes our directory and stops nothing; ask for one thing at a time")
        return "purge", None
    if not platform.has_meter:
        if action:
            raise errors.UsageError(f"nothing bills on {platform.names.said()}, so there is nothing to {action}")
        return "detach", None
    verb = platform.verb("stop" if action == "pause" else action or platform.meter_stop_verb)
    if verb.role not in ("pause", "destroy", "cancel", "cleanup"):
        raise errors.UsageError(f"{verb.label.said()} of {platform.names.said()} does not end a box")
    return ("stop" if verb.role == "pause" else "destroy"), verb


def words_of(platform: Platform, verb: Verb) -> list[str]:
    """Return what a person does, in the console's own words."""
    return [step.said() for step in verb.steps]


def storage_of(path: str) -> str:
    """Return how a path of this machine keeps bytes: ``local`` when that is known, else ``network``."""
    return "local" if disk(path).network is False else "network"


def tiers_of(place: Place, action: str, verb: Verb | None) -> tuple[Tier, ...]:
    """Return the storage of the box with the facts' answer for the verb. What no tier holds is as lost as the root."""
    box, platform = place.box, place.platform
    paths: dict[str, str] = dict(box.facts.get("tiers") or {})
    spared = set(platform.safe_tiers(verb.name)) if verb is not None and verb.role != "none" else set()
    found = []
    for tier in platform.tiers:
        survives = tier.name in spared if action in ("stop", "destroy") else True
        own = tier.kind == "local-disk" and tier.scope in ("instance", "host", "unknown")
        forever = tier.survives_destroy == "yes"
        for path in dict.fromkeys(p for p in (paths.get(tier.name), tier.mount) if p):
            found.append(Tier(tier.name, path, survives, forever, own))
    if action == "purge":
        return (Tier("our directory", posixpath.join(box.root, DIR), False, False, True), *found)
    if action in ("stop", "destroy") and not any(below(box.root, t.path) for t in found):
        found.append(Tier("root", box.root, False, False, True))
    return tuple(found)


def below(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


def costs_of(place: Place, action: str, verb: Verb | None) -> Costs:
    """Return what the box has cost by the recorded price, and what goes on billing after the verb."""
    platform = place.platform
    if not platform.has_meter:
        return Costs(why_unknown="your own machine: nothing bills")
    bills: tuple[str, ...] = ()
    if action in ("stop", "destroy") and verb is not None:
        state = "stopped" if verb.role == "pause" else "destroyed"
        bills = tuple(
            m.what.said() for m in platform.bills_after([verb.name]) if getattr(m, state) not in ("no", "n/a")
        )
    else:
        bills = tuple(m.what.said() for m in platform.billing.meters if m.running not in ("no", "n/a"))
    price = place.box.price
    if not price:
        return Costs(why_unknown="nobody said; outlive up BOX --price", still_bills=bills)
    hours = max(0.0, wall_s() - place.box.first_w) / 3600
    per_h = float(price["per_h"])
    return Costs(per_h, str(price.get("currency", "")), round(per_h * hours, 4), still_bills=bills)


def clocks_of(place: Place, action: str) -> tuple[DangerClock, ...]:
    """Return the platform's own timers: with a date where it is known when they started, or start with this verb."""
    now = wall_s()
    starts = {"box-started": place.box.facts.get("up_wall_s") or place.box.first_w}
    if action == "stop":
        starts.update({"box-stopped": now, "in-box-shutdown": now})
    if action == "destroy":
        starts.update({"box-released": now})
    found = []
    for clock in place.platform.danger_clocks:
        text = f"{clock.what.said()}: {clock.consequence.said()}"
        start = starts.get(clock.starts_when)
        at_s = None if start is None or clock.after_hours is None else float(start) + clock.after_hours * 3600
        found.append(DangerClock(text, at_s))
    return tuple(found)
