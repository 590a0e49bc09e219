"""The shape of one platform (schema version 2), and what a program may ask it.

These classes are the schema: each field is required in a fact file, its annotation is its type, and
``OneOf``/``Like`` beside that say what it may hold. ``shape.build`` reads them. None means "not known" or
"there is none"; the docstring of a class says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from re import Pattern
from typing import Annotated, NamedTuple

from outlive.errors import UnknownName
from outlive.platforms import words


class OneOf(NamedTuple):
    """The annotated string, or each string of the annotated tuple, is one of ``choices``."""

    choices: tuple[str, ...]


class Like(NamedTuple):
    """The annotated string, or each string of the annotated tuple, matches ``pattern`` (None is not looked at)."""

    pattern: Pattern[str]


@dataclass(frozen=True)
class Text:
    """A sentence or a console's word, in English and, where it was written, Chinese. A plain string is English."""

    en: str
    zh: str | None

    def said(self, lang: str = "en") -> str:
        """Return the words in ``lang``, English where that was not written."""
        return self.zh if lang == "zh" and self.zh else self.en


@dataclass(frozen=True)
class Verified:
    """The month (YYYY-MM) of the newest evidence, for each block on which money or data depends."""

    storage: Annotated[str, Like(words.MONTH)]
    billing: Annotated[str, Like(words.MONTH)]
    verbs: Annotated[str, Like(words.MONTH)]
    danger_clocks: Annotated[str, Like(words.MONTH)]


@dataclass(frozen=True)
class Hint:
    """One reading that tells the platform. ``name``: the variable, file, DMI field or mount point ("" for hostname and
    address); ``match``: a pattern for its value (None: it exists). ``strong``: no other platform shows it."""

    probe: Annotated[str, OneOf(words.HINTS)]
    name: str
    match: str | None
    strong: bool


@dataclass(frozen=True)
class Condition:
    """Something that decides whether a tier or a clock is there. ``hint`` tells it from the box; None: ask."""

    id: Annotated[str, Like(words.SLUG)]
    what: Text
    hint: Hint | None


@dataclass(frozen=True)
class TierProbe:
    """How to find a tier that has no fixed path: the value of the variable ``value`` (env), the only match of the
    pattern ``value`` (glob), or what the user gives under the word ``value`` (given)."""

    by: Annotated[str, OneOf(words.TIER_PROBES)]
    value: str


@dataclass(frozen=True)
class Conditions:
    """Ids of conditions: the tier or clock is there only when, or never when. None: no such condition."""

    present_when: str | None
    absent_when: str | None


@dataclass(frozen=True)
class Tier:
    """One kind of storage, at one path or found by one probe (neither: not mounted, as an object store).

    ``path`` is where files of ours may go; ``mount`` the file system that it is part of, when facts about the tier hold
    for all of that (None: for ``path`` only).

    ``survives_stop`` is about the platform's pause verb (`n/a` where there is none), ``survives_destroy`` about the
    end of the box. Hours stand beside `limited` only. Caps are None when there is none or none is known.
    """

    name: Annotated[str, Like(words.SLUG)]
    label: Text
    kind: Annotated[str, OneOf(words.TIER_KINDS)]
    path: Annotated[str | None, Like(words.PATH)]
    mount: Annotated[str | None, Like(words.PATH)]
    probe: TierProbe | None
    roles: Annotated[tuple[str, ...], OneOf(words.ROLES)]
    speed: Annotated[str, OneOf(words.SPEEDS)]
    writable: bool
    shared: Annotated[str, OneOf(words.TRI)]
    scope: Annotated[str, OneOf(words.SCOPES)]
    survives_stop: Annotated[str, OneOf(words.SURVIVALS)]
    survives_stop_hours: int | None
    survives_destroy: Annotated[str, OneOf(words.SURVIVALS)]
    survives_destroy_hours: int | None
    commit: Annotated[str, OneOf(words.COMMITS)]
    size_cap_bytes: int | None
    inode_cap: int | None
    conditions: Conditions
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Meter:
    """Something that bills, and in which state of the box it does. ``tier``: the storage it is for, if any."""

    id: Annotated[str, Like(words.SLUG)]
    what: Text
    running: Annotated[str, OneOf(words.TRI)]
    stopped: Annotated[str, OneOf(words.TRI)]
    destroyed: Annotated[str, OneOf(words.TRI)]
    tier: str | None


@dataclass(frozen=True)
class Billing:
    """What bills when. ``currency`` None: no money, or the platform's own unit. There are no prices here."""

    currency: str | None
    granularity: Text
    meters: tuple[Meter, ...]
    low_balance: Text | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Confirm:
    """Who can say that a verb took effect, and what they see then."""

    by: Annotated[str, OneOf(words.CONFIRMS)]
    seen: Text


@dataclass(frozen=True)
class Verb:
    """One thing that can be done to a box. ``label`` is the console's own word.

    ``deletes``, ``keeps`` and ``unsure`` together name every tier once. ``stops`` and ``lowers`` name meters.
    ``steps`` is what a person does, in order; ``api`` the call that does the same, None where there is none;
    ``api_when`` the condition under which that call serves this box (None: always).
    """

    name: Annotated[str, Like(words.VERB_NAME)]
    label: Text
    role: Annotated[str, OneOf(words.VERB_ROLES)]
    reversible: Annotated[str, OneOf(words.TRI)]
    stops: tuple[str, ...]
    lowers: tuple[str, ...]
    deletes: tuple[str, ...]
    keeps: tuple[str, ...]
    unsure: tuple[str, ...]
    api: Annotated[str | None, Like(words.API)]
    api_when: str | None
    steps: tuple[Text, ...]
    confirm: Confirm
    notes: tuple[str, ...]

    def by_hand(self, conditions: Sequence[str] = ()) -> bool:
        """Return whether a person must do it, when exactly the conditions ``conditions`` are known to hold."""
        return self.api is None or (self.api_when is not None and self.api_when not in conditions)


@dataclass(frozen=True)
class SelfStop:
    """How the box parks or ends itself. ``argv`` words of the form {env:NAME} stand for a variable of the box;
    ``needs_env`` must be set there. ``verb`` is the verb that it amounts to."""

    argv: tuple[str, ...]
    verb: str
    role: Annotated[str, OneOf(words.VERB_ROLES)]
    reversible: Annotated[str, OneOf(words.TRI)]
    needs_env: Annotated[tuple[str, ...], Like(words.ENV_NAME)]


@dataclass(frozen=True)
class DangerClock:
    """A timer that loses data or money though nobody does anything.

    ``after_hours`` counts from ``starts_when``; 0: at once; None: not fixed. ``warn_before_hours``: when to begin to
    say so; None: at the start. ``tiers``: what is lost.
    """

    id: Annotated[str, Like(words.SLUG)]
    what: Text
    starts_when: Annotated[str, OneOf(words.STARTS_WHEN)]
    after_hours: float | None
    warn_before_hours: float | None
    effect: Annotated[str, OneOf(words.EFFECTS)]
    tiers: tuple[str, ...]
    conditions: Conditions
    consequence: Text
    avoid_by: Text


@dataclass(frozen=True)
class SshFlavor:
    """One way in. ``host`` and ``port`` are patterns of what the platform shows."""

    name: Annotated[str, Like(words.SLUG)]
    host: str
    port: str
    exec: Annotated[str, OneOf(words.TRI)]
    files: Annotated[str, OneOf(words.TRI)]
    forward: Annotated[str, OneOf(words.TRI)]
    preferred: bool
    requires: Text | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Ssh:
    """``user`` None: not fixed. No flavors: there is no ssh at all."""

    user: str | None
    flavors: tuple[SshFlavor, ...]
    port_changes: Annotated[str, OneOf(words.CHANGES)]
    ip_changes: Annotated[str, OneOf(words.CHANGES)]
    key_registration: Annotated[str, OneOf(words.KEY_REGISTRATIONS)]
    password_login: Annotated[str, OneOf(words.TRI)]


@dataclass(frozen=True)
class Launch:
    """From renting to the first connection: ``steps`` in order, ``ready`` what shows that it works."""

    console_language: Annotated[str, OneOf(("en", "zh", "none"))]
    api: Annotated[str, OneOf(words.TRI)]
    entry_points: tuple[str, ...]
    steps: tuple[Text, ...]
    ready: Text
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Python:
    """The interpreter: a fixed ``path``, or ``candidates`` to try in order; neither: ask the box's PATH."""

    env_is: Annotated[str, OneOf(words.ENV_IS)]
    path: Annotated[str | None, Like(words.PATH)]
    candidates: Annotated[tuple[str, ...], Like(words.PATH)]
    create_env_ok: Annotated[str, OneOf(words.TRI)]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Proxy:
    """The platform's own road abroad: a file to source, or variables to set ({port} and the like are in ``asks``).

    ``hosts`` is what it serves; ``only_hosts``: everything else is refused while it is on. ``unset`` ends it.
    """

    kind: Annotated[str, OneOf(words.PROXIES)]
    path: Annotated[str | None, Like(words.PATH)]
    env: dict[str, str]
    asks: tuple[str, ...]
    hosts: tuple[str, ...]
    only_hosts: bool
    unset: tuple[str, ...]


@dataclass(frozen=True)
class Panel:
    """A built-in board: it shows what lies in ``logdir``, on ``port`` of the box."""

    logdir: Annotated[str, Like(words.PATH)]
    port: int


@dataclass(frozen=True)
class Network:
    """Roads in and out. Prices per GB are not kept: ``*_from`` says where a price is to be read."""

    mirrors_needed: Annotated[str, OneOf(words.MIRRORS)]
    egress_free: Annotated[str, OneOf(words.TRI)]
    egress_price_from: Annotated[str, OneOf(words.PRICE_FROM)]
    cross_zone_price_from: Annotated[str, OneOf(words.PRICE_FROM)]
    proxy: Proxy | None
    ports: Text
    max_open_ports: int | None
    http_timeout_s: int | None
    panel: Panel | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Notice:
    """How an interruption shows before or as it comes. ``url`` for http and outside, else None."""

    by: Annotated[str, OneOf(words.NOTICES)]
    url: str | None
    what: Text | None


@dataclass(frozen=True)
class Spot:
    """Whether the platform takes boxes back. ``grace_s``: seconds from the first sign to the end; None: unknown."""

    available: Annotated[str, OneOf(words.TRI)]
    model: Text
    signal: Annotated[str, OneOf(words.SIGNALS)]
    grace_s: int | None
    notice: Notice
    can_flush: Annotated[str, OneOf(words.TRI)]
    auto_resume: Annotated[str, OneOf(words.TRI)]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class RelaunchHook:
    """What the platform starts again by itself after a restart; ``path`` is the file that it runs, if it is one."""

    kind: Annotated[str, OneOf(words.HOOKS)]
    path: Annotated[str | None, Like(words.PATH)]


@dataclass(frozen=True)
class Detach:
    """What people use there to leave a job alone, and what it survives. Our keeper needs none of it."""

    primitive: Annotated[str, OneOf(words.DETACH)]
    preinstalled: Annotated[str, OneOf(words.TRI)]
    survives_disconnect: Annotated[str, OneOf(words.TRI)]
    survives_restart: Annotated[str, OneOf(words.TRI)]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Credentials:
    """How secrets travel there. ``never_write_to`` names tiers, ``never_put_in`` other things that outlive a box."""

    how: Text
    file: Annotated[str | None, Like(words.PATH)]
    env_vars: Annotated[tuple[str, ...], Like(words.ENV_NAME)]
    never_write_to: tuple[str, ...]
    never_put_in: Annotated[tuple[str, ...], OneOf(words.NEVER_PUT)]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class RuleInputs:
    """What rules of the diagnosis and the planner ask of a platform; None and `unknown` mean that they must say so."""

    local_nvme_tier: str | None
    host_cuda_from: Annotated[str, OneOf(("driver", "offer", "unknown", "n/a"))]
    image_digest_expected: Annotated[str, OneOf(words.DIGESTS)]


@dataclass(frozen=True)
class Convenience:
    """Something that most people miss. ``console``: the words to look for, None where it is no button."""

    id: Annotated[str, Like(words.SLUG)]
    what: Text
    console: Text | None


@dataclass(frozen=True)
class VerbBinding:
    """How one of our six verbs is done there, and by whom."""

    how: Annotated[str, OneOf(words.HOW)]
    what: Text


@dataclass(frozen=True)
class SixVerbs:
    """Each of the six verbs has an answer on each platform."""

    up: VerbBinding
    push: VerbBinding
    run: VerbBinding
    watch: VerbBinding
    pull: VerbBinding
    down: VerbBinding

    def items(self) -> list[tuple[str, VerbBinding]]:
        return [(name, getattr(self, name)) for name in words.SIX_VERBS]


@dataclass(frozen=True)
class Detect:
    """How to see that a gotcha applies: where to look, how, and the sign. For people; nothing runs it unread."""

    where: Annotated[str, OneOf(words.DETECT_WHERE)]
    how: str
    signal: str


@dataclass(frozen=True)
class Gotcha:
    """A trap of this platform only."""

    id: str
    severity: Annotated[str, OneOf(words.SEVERITIES)]
    symptom: Text
    cause: Text
    fix: Text
    detect: Detect


@dataclass(frozen=True)
class Disagreement:
    """Sources that contradict each other, and which one the facts follow."""

    topic: str
    views: tuple[str, ...]
    use: str
    why: str


@dataclass(frozen=True)
class Source:
    """Where facts are from; ``month`` is the page's own, or the month it was read."""

    url: Annotated[str, Like(words.URL)]
    month: Annotated[str, Like(words.MONTH)]
    covers: str


@dataclass(frozen=True)
class Platform:
    """All facts of one platform. ``meter_stop_verb`` `none`: nothing bills, and `down` only detaches."""

    schema_version: int
    id: Annotated[str, Like(words.SLUG)]
    names: Text
    kind: Annotated[str, OneOf(words.KINDS)]
    confidence: Annotated[str, OneOf(words.CONFIDENCES)]
    verified: Verified
    summary: Text
    recognise: tuple[Hint, ...]
    conditions: tuple[Condition, ...]
    launch: Launch
    ssh: Ssh
    python: Python
    tiers: tuple[Tier, ...]
    storage_notes: tuple[str, ...]
    billing: Billing
    verbs: tuple[Verb, ...]
    meter_stop_verb: str
    full_meter_stop: tuple[str, ...]
    self_stop: SelfStop | None
    relaunch_hook: RelaunchHook | None
    danger_clocks: tuple[DangerClock, ...]
    spot: Spot
    network: Network
    detach: Detach
    env_defaults: dict[str, str]
    credentials: Credentials
    rule_inputs: RuleInputs
    conveniences: tuple[Convenience, ...]
    first_contact: tuple[Text, ...]
    six_verbs: SixVerbs
    gotchas: tuple[Gotcha, ...]
    disagreements: tuple[Disagreement, ...]
    sources: tuple[Source, ...]
    overridden: tuple[str, ...] = field(default=(), metadata={"runtime": True})
    """Which facts come from the user's own file, as paths (``tiers[data-disk].size_cap_bytes``)."""

    def tier(self, name: str) -> Tier:
        """Return the tier of that name. Raises UnknownName."""
        for tier in self.tiers:
            if tier.name == name:
                return tier
        raise UnknownName.of("storage tier", name, [t.name for t in self.tiers])

    def tiers_for(self, role: str, conditions: Sequence[str] | None = None) -> tuple[Tier, ...]:
        """Return the tiers of that role, the preferred one first.

        ``conditions`` are the ids of those known to hold: tiers that these exclude, or that need one which does not
        hold, are left out. None: nothing is known about conditions, and every tier of the role is returned.
        """
        tiers = (tier for tier in self.tiers if role in tier.roles)
        if conditions is None:
            return tuple(tiers)
        return tuple(tier for tier in tiers if holds(tier.conditions, conditions))

    def tier_of(self, path: str, conditions: Sequence[str] = ()) -> Tier | None:
        """Return the tier that the absolute ``path`` lies on by the facts, None where no tier claims it.

        The longest path or mount wins. Tiers found by a probe have no fixed path and are not considered, unless they
        have a mount. ``conditions`` are those known to hold: a tier that needs another one is not there, so that a
        path on a volume which perhaps was never attached counts as the disk below it.
        """
        best: tuple[int, Tier | None] = (-1, None)
        for tier in self.tiers:
            if not holds(tier.conditions, conditions):
                continue
            for place in (tier.path, tier.mount):
                if place is not None and _under(path, place) and len(place) > best[0]:
                    best = (len(place), tier)
        return best[1]

    def verb(self, name: str) -> Verb:
        """Return the verb of that name; `stop` and `destroy` also mean the platform's own verb of that role.

        Raises UnknownName: there is none, for instance no `stop` where a box cannot be parked.
        """
        for verb in self.verbs:
            if verb.name == name:
                return verb
        wanted = {"stop": ("pause",), "destroy": ("destroy", "cancel")}.get(name, ())
        for verb in self.verbs:
            if verb.role in wanted:
                return verb
        raise UnknownName.of(f"verb of {self.id}", name, [v.name for v in self.verbs])

    def safe_tiers(self, verb: str) -> tuple[str, ...]:
        """Return the names of the tiers that survive ``verb`` for certain, in the order of the file.

        The verb must keep the tier, and the tier's own word must not say otherwise (a correction of the user's may
        touch only one of the two: the less hopeful one counts).
        """
        found = self.verb(verb)
        attribute = {"pause": "survives_stop", "destroy": "survives_destroy", "cancel": "survives_destroy"}.get(
            found.role
        )
        return tuple(
            tier.name
            for tier in self.tiers
            if tier.name in found.keeps and (attribute is None or getattr(tier, attribute) == "yes")
        )

    def lost_by(self, verb: str) -> tuple[str, ...]:
        """Return the names of all tiers that ``verb`` deletes, or of which nobody can say that they survive it."""
        safe = self.safe_tiers(verb)
        return tuple(tier.name for tier in self.tiers if tier.name not in safe)

    def bills_after(self, verbs: Sequence[str]) -> tuple[Meter, ...]:
        """Return the meters that may go on after these verbs were carried out.

        A meter ends when a verb in ``verbs`` stops it; one that never ran in any state is not listed.
        """
        ended = {meter for name in verbs for meter in self.verb(name).stops}
        quiet = ("no", "n/a")
        return tuple(
            meter
            for meter in self.billing.meters
            if meter.id not in ended
            and not (meter.running in quiet and meter.stopped in quiet and meter.destroyed in quiet)
        )

    @property
    def has_meter(self) -> bool:
        """False on machines of one's own, where `down` only detaches."""
        return self.meter_stop_verb != "none"


def holds(conditions: Conditions, known: Sequence[str]) -> bool:
    """Return whether a thing with these conditions is there when exactly the conditions ``known`` hold."""
    if conditions.absent_when is not None and conditions.absent_when in known:
        return False
    return conditions.present_when is None or conditions.present_when in known


def _under(path: str, place: str) -> bool:
    return place == "/" or path == place or path.startswith(place.rstrip("/") + "/")
