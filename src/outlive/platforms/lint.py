"""Is a fact file well formed, consistent with itself, and young enough to be trusted with money?"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from outlive.errors import BadConfig
from outlive.platforms import shape, words
from outlive.platforms.model import Conditions, Platform, Text, Tier, Verb

WARN_AFTER_MONTHS = 6
FAIL_AFTER_MONTHS = 12
BLOCKS = ("storage", "billing", "verbs", "danger_clocks")


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a fact file. ``level`` is `error` or `warning`; ``at`` is the path of the fact."""

    platform: str
    at: str
    level: str
    what: str

    def __str__(self) -> str:
        return f"{self.platform}: {self.at}: {self.what}"


def lint(data: Mapping[str, Any], today: datetime.date | None = None, *, id: str = "") -> list[Problem]:
    """Return what is wrong with one platform's facts. Without ``today`` their age is not judged."""
    name = id or str(data.get("id", "?"))
    faults: shape.Faults = []
    platform = shape.build(Platform, data, "", faults)
    if platform is None:
        return [Problem(name, at, "error", what) for at, what in faults]
    found = [Problem(name, at, "error", what) for at, what in _inside(platform)]
    if id and platform.id != id:
        found.append(Problem(name, "id", "error", f"`{platform.id}` in a file named `{id}`"))
    if today is not None:
        found += age(platform, today)
    return found


def lint_all(everything: Mapping[str, Mapping[str, Any]], today: datetime.date | None = None) -> list[Problem]:
    """Return what is wrong with these platforms, by id, and between them."""
    found = [problem for id, data in sorted(everything.items()) for problem in lint(data, today, id=id)]
    for block in ("gotchas", "danger_clocks"):
        owner: dict[str, str] = {}
        for id, data in sorted(everything.items()):
            for item in data.get(block) or ():
                key = item.get("id") if isinstance(item, Mapping) else None
                if key in owner and owner[key] != id:
                    found.append(Problem(id, f"{block}[{key}]", "error", f"{owner[key]} uses this id too"))
                elif key:
                    owner[key] = id
    return found


def must_pass(everything: Mapping[str, Mapping[str, Any]], where: str) -> None:
    """Raise BadConfig that lists every error in these facts; their age does not count."""
    errors = [problem for problem in lint_all(everything) if problem.level == "error"]
    if errors:
        raise BadConfig(f"{len(errors)} errors in the facts", file=where, why=[str(e) for e in errors])


def months_between(month: str, today: datetime.date) -> int:
    """Return the whole calendar months from ``month`` (YYYY-MM) to ``today``; negative when it lies ahead."""
    year, number = (int(part) for part in month.split("-"))
    return (today.year - year) * 12 + today.month - number


def age(platform: Platform, today: datetime.date) -> list[Problem]:
    """Return a problem for each block of money-bearing facts that was last verified too long ago."""
    found = []
    for block in BLOCKS:
        month = getattr(platform.verified, block)
        months = months_between(month, today)
        at = f"verified.{block}"
        if months < 0:
            found.append(Problem(platform.id, at, "error", f"{month} lies in the future"))
        elif months > FAIL_AFTER_MONTHS:
            what = f"last verified {month}, {months} months ago: too old to decide about money or data"
            found.append(Problem(platform.id, at, "error", what))
        elif months > WARN_AFTER_MONTHS:
            found.append(
                Problem(platform.id, at, "warning", f"last verified {month}, {months} months ago: verify again")
            )
    return found


def _inside(p: Platform) -> Iterator[tuple[str, str]]:
    if p.schema_version != words.SCHEMA_VERSION:
        yield "schema_version", f"{p.schema_version} instead of {words.SCHEMA_VERSION}"
    yield from _unique(p)
    yield from _tiers(p)
    yield from _roots(p)
    yield from _verbs(p)
    yield from _stopping(p)
    yield from _clocks(p)
    yield from _texts(p)
    yield from _references(p)


def _unique(p: Platform) -> Iterator[tuple[str, str]]:
    lists: dict[str, list[str]] = {
        "tiers": [t.name for t in p.tiers],
        "verbs": [v.name for v in p.verbs],
        "billing.meters": [m.id for m in p.billing.meters],
        "gotchas": [g.id for g in p.gotchas],
        "danger_clocks": [c.id for c in p.danger_clocks],
        "conditions": [c.id for c in p.conditions],
        "conveniences": [c.id for c in p.conveniences],
        "ssh.flavors": [f.name for f in p.ssh.flavors],
    }
    for at, names in lists.items():
        for name in sorted({n for n in names if names.count(n) > 1}):
            yield f"{at}[{name}]", "there are two of that name"


def _tiers(p: Platform) -> Iterator[tuple[str, str]]:
    for tier in p.tiers:
        at = f"tiers[{tier.name}]"
        if tier.path is not None and tier.probe is not None:
            yield at, "one path or one probe, not both"
        if tier.path is None and tier.probe is None and tier.kind in ("local-disk", "network-fs"):
            yield at, "mounted, so it needs a path or a probe"
        if tier.roles and tier.kind in ("object", "snapshot") and set(tier.roles) & {"root", "data"}:
            yield f"{at}.roles", "nothing can run on it"
        if not tier.writable and set(tier.roles) & {"root", "durable"}:
            yield f"{at}.roles", "it cannot be written"
        if tier.mount is not None and tier.path is not None and not tier.path.startswith(tier.mount):
            yield f"{at}.mount", "the path does not lie on it"
        for verb in ("stop", "destroy"):
            survives = getattr(tier, f"survives_{verb}")
            hours = getattr(tier, f"survives_{verb}_hours")
            if hours is not None and survives != "limited":
                yield f"{at}.survives_{verb}_hours", "hours stand beside `limited` only"
            if survives == "limited" and hours is None:
                yield f"{at}.survives_{verb}_hours", "limited to how many hours?"
        if "durable" in tier.roles and p.has_meter and tier.survives_destroy != "yes":
            yield f"{at}.roles", f"durable, but survives_destroy is {tier.survives_destroy}"
        for cap in ("size_cap_bytes", "inode_cap"):
            value = getattr(tier, cap)
            if value is not None and value <= 0:
                yield f"{at}.{cap}", "not a capacity"


def _roots(p: Platform) -> Iterator[tuple[str, str]]:
    """The root is the fastest tier that survives a stop and is private; a shared one where there is no other."""
    roots = p.tiers_for("root")
    if not roots:
        yield "tiers", "none has the role root"
        return
    private = [t for t in p.tiers if _may_be_root(t) and t.shared == "no" and t.conditions == Conditions(None, None)]
    if private:
        best = min(words.SPEEDS.index(t.speed) for t in private)
        if roots[0] not in private or words.SPEEDS.index(roots[0].speed) > best:
            names = ", ".join(t.name for t in private if words.SPEEDS.index(t.speed) == best)
            yield f"tiers[{roots[0].name}].roles", f"the root should be {names}"


def _may_be_root(tier: Tier) -> bool:
    return tier.survives_stop in ("yes", "n/a") and tier.writable and tier.kind in ("local-disk", "network-fs")


def _verbs(p: Platform) -> Iterator[tuple[str, str]]:
    names = [t.name for t in p.tiers]
    meters = {m.id for m in p.billing.meters}
    for verb in p.verbs:
        at = f"verbs[{verb.name}]"
        told = [*verb.deletes, *verb.keeps, *verb.unsure]
        for name in sorted(set(told) | set(names)):
            if name not in names:
                yield at, f"no tier is called `{name}`"
            elif told.count(name) != 1:
                yield at, f"`{name}` must stand once in deletes, keeps or unsure"
        for meter in {*verb.stops, *verb.lowers} - meters:
            yield at, f"no meter is called `{meter}`"
        if verb.api is None and not verb.steps and verb.role != "none":
            yield f"{at}.steps", "no API and no steps: nobody can do it"
        yield from _survival(verb, p, at)


def _survival(verb: Verb, p: Platform, at: str) -> Iterator[tuple[str, str]]:
    """The tiers' own words must say the same as the verb that stops or ends the box."""
    for role, attribute in (
        ("pause", "survives_stop"),
        ("destroy", "survives_destroy"),
        ("cancel", "survives_destroy"),
    ):
        if verb.role != role:
            continue
        for tier in p.tiers:
            word = getattr(tier, attribute)
            fits = {"yes": verb.keeps, "no": verb.deletes}.get(word, verb.unsure)
            if word == "n/a" or tier.name not in fits:
                yield at, f"`{tier.name}` has {attribute} {word}, which this verb contradicts"


def _stopping(p: Platform) -> Iterator[tuple[str, str]]:
    names = {v.name for v in p.verbs}
    if p.meter_stop_verb not in names:
        yield "meter_stop_verb", f"no verb is called `{p.meter_stop_verb}`"
    for name in p.full_meter_stop:
        if name not in names:
            yield "full_meter_stop", f"no verb is called `{name}`"
    if p.has_meter and p.meter_stop_verb not in p.full_meter_stop:
        yield "full_meter_stop", f"leaves out `{p.meter_stop_verb}`"
    if not p.has_meter and p.full_meter_stop:
        yield "full_meter_stop", "there is no meter to stop"
    stop = p.self_stop
    if stop is not None:
        verb = next((v for v in p.verbs if v.name == stop.verb), None)
        if verb is None:
            yield "self_stop.verb", f"no verb is called `{stop.verb}`"
        elif (verb.role, verb.reversible) != (stop.role, stop.reversible):
            yield "self_stop", f"`{verb.name}` is {verb.role}, reversible {verb.reversible}"
        if not stop.argv:
            yield "self_stop.argv", "empty"


def _clocks(p: Platform) -> Iterator[tuple[str, str]]:
    for clock in p.danger_clocks:
        at = f"danger_clocks[{clock.id}]"
        if clock.after_hours is not None and clock.after_hours < 0:
            yield f"{at}.after_hours", "negative"
        if clock.warn_before_hours is not None and not (
            clock.after_hours is not None and 0 < clock.warn_before_hours < clock.after_hours
        ):
            yield f"{at}.warn_before_hours", "must lie between 0 and after_hours"


def _references(p: Platform) -> Iterator[tuple[str, str]]:
    tiers = {t.name for t in p.tiers}
    conditions = {c.id for c in p.conditions}
    used: list[tuple[str, str | None, set[str], str]] = []
    used += [(f"danger_clocks[{c.id}].tiers", t, tiers, "tier") for c in p.danger_clocks for t in c.tiers]
    used += [("credentials.never_write_to", t, tiers, "tier") for t in p.credentials.never_write_to]
    used += [(f"billing.meters[{m.id}].tier", m.tier, tiers, "tier") for m in p.billing.meters]
    used += [("rule_inputs.local_nvme_tier", p.rule_inputs.local_nvme_tier, tiers, "tier")]
    used += [(f"verbs[{v.name}].api_when", v.api_when, conditions, "condition") for v in p.verbs]
    owners = [(f"tiers[{t.name}]", t.conditions) for t in p.tiers]
    owners += [(f"danger_clocks[{c.id}]", c.conditions) for c in p.danger_clocks]
    for at, needs in owners:
        used += [(f"{at}.conditions", needs.present_when, conditions, "condition")]
        used += [(f"{at}.conditions", needs.absent_when, conditions, "condition")]
    for at, name, known, kind in used:
        if name is not None and name not in known:
            yield at, f"no {kind} is called `{name}`"
    if p.network.egress_free == "yes" and p.network.egress_price_from != "free":
        yield "network.egress_price_from", "egress is free"
    if p.spot.available == "no" and p.spot.grace_s is not None and p.spot.grace_s > 0:
        yield "spot.grace_s", "nothing is taken back"


def _texts(p: Platform) -> Iterator[tuple[str, str]]:
    for at, text in _walk(p, ""):
        if isinstance(text, Text):
            if text.zh is not None and not text.zh.strip():
                yield f"{at}.zh", "empty; null if it was not written"
            continue
        in_notes = "notes[" in at
        if words.PRICE.search(text) and not in_notes:
            yield at.removesuffix(".en").removesuffix(".zh"), "looks like a price; prices are no facts"
    for at, named in _must_have_zh(p):
        if named.zh is None:
            yield f"{at}.zh", "missing"
    for key, value in p.env_defaults.items():
        if not words.ENV_NAME.match(key):
            yield f"env_defaults.{key}", "not a variable's name"
        for name in _placeholders(value):
            if name not in words.PLACEHOLDERS:
                yield f"env_defaults.{key}", f"no placeholder is called {{{name}}}"
        if "$" in value:
            yield f"env_defaults.{key}", "placeholders are written {data}, nothing is expanded by a shell"


def _must_have_zh(p: Platform) -> Iterator[tuple[str, Text]]:
    yield "names", p.names
    for verb in p.verbs:
        yield f"verbs[{verb.name}].label", verb.label
    if p.launch.console_language == "zh":
        for i, step in enumerate(p.launch.steps):
            yield f"launch.steps[{i}]", step
        for verb in p.verbs:
            for i, step in enumerate(verb.steps):
                yield f"verbs[{verb.name}].steps[{i}]", step
        for i, line in enumerate(p.first_contact):
            yield f"first_contact[{i}]", line


def _placeholders(value: str) -> list[str]:
    return [part.partition("}")[0] for part in value.split("{")[1:]]


def _walk(value: Any, at: str) -> Iterator[tuple[str, Any]]:
    """Yield (path, Text) and (path, string) for everything in ``value``; a Text is followed by its own strings."""
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            label = getattr(item, "name", None) or getattr(item, "id", None) or i
            yield from _walk(item, f"{at}[{label}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(item, f"{at}.{key}")
    elif hasattr(value, "__dataclass_fields__"):
        if isinstance(value, Text):
            yield at, value
        for name in value.__dataclass_fields__:
            yield from _walk(getattr(value, name), f"{at}.{name}" if at else name)
