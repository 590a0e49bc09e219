"""The fold of the ledger: what this client knows of boxes, runs, approvals, money and orphans.

Fields of each kind (all optional but the first; what is not named here is kept in ``facts``):

====================  ====================================================================================
``intent``            ``id``, label, provider, box, what; a later one with ``result`` says how it ended
``box``               ``name``, box_id, platform, provider_id, address, root, intent
``run``               ``run``, box, job, spec_digest, cwd, state, delivery
``place_state``       ``box``, state (``wire.states.BOX_STATES``), why
``price``             ``box``, per_h, currency, source
``request``           ``id`` and the other fields of ``gate.Request``
``approval``          ``id`` and the other fields of ``gate.Approval``
``approval_used``     ``id``
``waiver``            ``box`` and the other fields of ``gate.Waiver``
``receipt``           ``box``, receipt (``gate.Receipt.to_json``)
``proof``             ``proof`` (``wire.values.Proof``), run
``copy``              ``copy`` (``wire.values.Copy``), run
``proofs``            ``alike``: what these proofs have in common, ``each``: [[sha256, bytes, wall_s]], run
``copies``            ``alike``: what these copies have in common, ``each``: [[sha256, path, stamp]], run
``adopted``           ``box``, run, why
``forgot``            ``name`` of a box or a run, why
``note``              ``text``, box, run
====================  ====================================================================================
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlive.gate.approval import Approval, Request

FOLD_VERSION = 2
"""Grows when the same records fold to another state, so that a cache made before is dropped."""

ENVELOPE = frozenset({"n", "k", "b", "w"})

Plain = dict[str, Any]


@dataclass
class Box:
    """A box as the ledger knows it; what it is doing now only the box and its platform can say."""

    name: str
    box_id: str = ""
    platform: str = ""
    provider_id: str = ""
    address: str = ""
    root: str = ""
    state: str = ""
    """Last recorded state, "" when none was; never shown as "now"."""
    state_why: str = ""
    state_w: float = 0.0
    price: Plain | None = None
    facts: Plain = field(default_factory=dict)
    first_w: float = 0.0
    last_n: int = -1
    forgotten: bool = False

    @property
    def gone(self) -> bool:
        """The platform's listing or the user said so."""
        return self.forgotten or self.state == "gone"


@dataclass
class Run:
    """A run as the ledger knows it."""

    run: str
    box: str = ""
    """Name of the box of its newest attempt that this client knows of."""
    job: str = ""
    spec_digest: str = ""
    cwd: str = ""
    """The project directory that it was started from, on this machine."""
    state: str = ""
    delivery: str = ""
    copies: list[Plain] = field(default_factory=list)
    """``wire.values.Copy`` in the order they were made."""
    facts: Plain = field(default_factory=dict)
    first_w: float = 0.0
    last_n: int = -1
    forgotten: bool = False

    @property
    def name(self) -> str:
        return self.run


@dataclass
class Intent:
    """Something that may have been paid for. Without a result it is an orphan until a listing answers."""

    id: str
    label: str = ""
    provider: str = ""
    box: str = ""
    result: str = ""
    facts: Plain = field(default_factory=dict)
    first_w: float = 0.0


@dataclass
class LedgerState:
    """The fold. Feed records in order with ``add``."""

    boxes: dict[str, Box] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    intents: dict[str, Intent] = field(default_factory=dict)
    requests: dict[str, Plain] = field(default_factory=dict)
    approvals: dict[str, Plain] = field(default_factory=dict)
    """Approval id -> fields of ``gate.Approval``, with the uses that are left."""
    waivers: list[Plain] = field(default_factory=list)
    receipts: list[Plain] = field(default_factory=list)
    proofs: dict[str, list[Plain]] = field(default_factory=dict)
    """Digest -> every ``wire.values.Proof`` about it: a refutation is not forgotten under a later proof."""
    notes: list[Plain] = field(default_factory=list)
    past_names: list[str] = field(default_factory=list)
    """Names that were given to a box which another one has replaced; never given again by us."""
    last_run: str = ""
    last_n: int = -1

    @property
    def orphans(self) -> list[Intent]:
        """Intents that no record answers: something may exist and bill."""
        return [i for i in self.intents.values() if not i.result]

    def approval(self, id: str) -> "Approval | None":
        """Return an approval with the uses it has left."""
        from outlive.gate.approval import Approval  # every command folds the ledger, few ask the gate

        plain = self.approvals.get(id)
        return Approval.from_wire(plain) if plain is not None else None

    def approvals_for(self, box: str, action: str, now_s: float) -> "list[Approval]":
        """Return what may still be used for a verb, newest first. ``gate.approval.check`` has the last word."""
        from outlive.gate.approval import Approval

        all_ = (Approval.from_wire(a) for a in reversed(self.approvals.values()))
        return [a for a in all_ if a.box == box and a.action == action and a.uses_left > 0 and now_s < a.until_s]

    def request(self, id: str) -> "Request | None":
        """Return a stored request."""
        from outlive.gate.approval import Request

        plain = self.requests.get(id)
        return Request.from_wire(plain) if plain is not None else None

    def add(self, record: Plain) -> None:
        """Fold one record. A kind or field of a newer version is kept or ignored, never an error."""
        self.last_n = int(record["n"]) if isinstance(record.get("n"), int) else self.last_n
        fold_one = getattr(self, f"_on_{record['k']}", None)
        body = {k: v for k, v in record.items() if k not in ENVELOPE}
        if fold_one is not None:
            fold_one(record, body)

    def _on_intent(self, record: Plain, body: Plain) -> None:
        intent = self.intents.setdefault(str(body["id"]), Intent(str(body["id"]), first_w=record["w"]))
        _merge(intent, body)

    def _on_box(self, record: Plain, body: Plain) -> None:
        name = str(body["name"])
        known = self.boxes.get(name)
        if known is None or _replaced(known, body):
            if known is not None:
                self.past_names.append(name)
            known = self.boxes[name] = Box(name, first_w=record["w"])
        known.forgotten = False
        _merge(known, body)
        known.last_n = self.last_n
        intent = self.intents.get(str(body.get("intent", "")))
        if intent is not None and not intent.result:
            intent.result = "created"
            intent.box = name

    def _on_run(self, record: Plain, body: Plain) -> None:
        name = str(body["run"])
        run = self.runs.setdefault(name, Run(name, first_w=record["w"]))
        if run.last_n < 0:
            self.last_run = name
        run.forgotten = False
        _merge(run, body)
        run.last_n = self.last_n

    def _on_place_state(self, record: Plain, body: Plain) -> None:
        box = self.boxes.get(str(body.get("box", "")))
        if box is not None:
            box.state, box.state_why, box.state_w = str(body["state"]), str(body.get("why", "")), record["w"]

    def _on_price(self, record: Plain, body: Plain) -> None:
        box = self.boxes.get(str(body.get("box", "")))
        if box is not None:
            box.price = {**body, "read_w": record["w"]}

    def _on_request(self, record: Plain, body: Plain) -> None:
        self.requests[str(body["id"])] = body

    def _on_approval(self, record: Plain, body: Plain) -> None:
        # A second record with a known id would give the uses back.
        self.approvals.setdefault(str(body["id"]), body)

    def _on_approval_used(self, record: Plain, body: Plain) -> None:
        plain = self.approvals.get(str(body["id"]))
        if plain is not None:
            self.approvals[str(body["id"])] = {**plain, "uses_left": max(0, int(plain.get("uses_left", 0)) - 1)}

    def _on_waiver(self, record: Plain, body: Plain) -> None:
        self.waivers.append(body)

    def _on_receipt(self, record: Plain, body: Plain) -> None:
        self.receipts.append({**body, "w": record["w"]})

    def _on_proof(self, record: Plain, body: Plain) -> None:
        about = self.proofs.setdefault(str(body["proof"]["sha256"]), [])
        if body["proof"] not in about:
            about.append(body["proof"])

    def _on_proofs(self, record: Plain, body: Plain) -> None:
        for sha256, size, wall_s in body["each"]:
            proof = {**body["alike"], "sha256": sha256, "bytes": size, "wall_s": wall_s}
            about = self.proofs.setdefault(sha256, [])
            if proof not in about:
                about.append(proof)

    def _on_copies(self, record: Plain, body: Plain) -> None:
        name = str(body.get("run", ""))
        run = self.runs.setdefault(name, Run(name, first_w=record["w"]))
        alike = body["alike"]
        run.copies += [{**alike, "sha256": sha256, "path": path, "stamp": now} for sha256, path, now in body["each"]]

    def _on_copy(self, record: Plain, body: Plain) -> None:
        name = str(body.get("run", ""))
        run = self.runs.setdefault(name, Run(name, first_w=record["w"]))
        run.copies.append(body["copy"])

    def _on_adopted(self, record: Plain, body: Plain) -> None:
        self.notes.append({**body, "adopted": True, "w": record["w"]})

    def _on_forgot(self, record: Plain, body: Plain) -> None:
        known = self.boxes.get(str(body["name"])) or self.runs.get(str(body["name"]))
        if known is not None:
            known.forgotten = True

    def _on_note(self, record: Plain, body: Plain) -> None:
        self.notes.append({**body, "w": record["w"]})

    def to_plain(self) -> Plain:
        """Return the state as JSON-ready types, for the cache."""
        plain: Plain = dict(self.__dict__)
        for name in ("boxes", "runs", "intents"):
            plain[name] = {key: dict(value.__dict__) for key, value in plain[name].items()}
        return plain

    @classmethod
    def from_plain(cls, plain: Plain) -> "LedgerState":
        """Build the state from ``to_plain``'s output. Raises TypeError or KeyError for anything else."""
        made: Plain = dict(plain)
        for name, kind in (("boxes", Box), ("runs", Run), ("intents", Intent)):
            made[name] = {key: kind(**value) for key, value in plain[name].items()}
        return cls(**made)


def fold(records: Iterable[Plain], state: LedgerState | None = None) -> LedgerState:
    """Return the state after these records, continuing ``state`` when it is given."""
    folded = state if state is not None else LedgerState()
    for record in records:
        folded.add(record)
    return folded


def _merge(known: Box | Run | Intent, body: Plain) -> None:
    own = {f.name for f in fields(known)} - {"facts", "first_w", "last_n", "forgotten", "price", "copies"}
    for key, value in body.items():
        if key in own:
            setattr(known, key, value)
        else:
            known.facts[key] = value


def _replaced(known: Box, body: Plain) -> bool:
    """Return whether the record is about another machine under the same name."""
    old, new = known.box_id, str(body.get("box_id", ""))
    if old and new:
        return old != new
    return known.gone and not known.forgotten
