"""A person's leave: stored requests, approvals given now or standing, and taking them back."""

from __future__ import annotations

import datetime
import re
import secrets
from dataclasses import dataclass
from typing import Protocol

from outlive import errors
from outlive.gate import Approval, BoxClaims, Decision, Request, decide
from outlive.gate import approval as approvals
from outlive.ledger import use_approval
from outlive.runs.ending import action_of
from outlive.runs.evidence import gather
from outlive.runs.home import Home
from outlive.runs.job import seconds
from outlive.runs.place import open_place
from outlive.wire.clock import wall_s


class Terminal(Protocol):
    """Where a person may sit. Given by the command line; programs and AI agents have none."""

    @property
    def is_terminal(self) -> bool:
        """Whether both input and output are a terminal."""
        ...

    def ask(self, prompt: str) -> str:
        """Show ``prompt`` and return the line that was typed; "" at the end of input."""
        ...


@dataclass(frozen=True)
class Pending:
    """What waits for a person, and what was allowed. Requests and approvals that are over are left out."""

    requests: list[Request]
    approvals: list[Approval]


def has_person(terminal: Terminal | None) -> bool:
    """Return whether somebody can be asked."""
    return terminal is not None and terminal.is_terminal


def types_name(terminal: Terminal | None, prompt: str, name: str) -> bool:
    """Ask for a name and return whether exactly that was typed. False where nobody can be asked."""
    return terminal is not None and terminal.is_terminal and terminal.ask(prompt).strip() == name


def new_id(stem: str) -> str:
    """Return a short random id, ``<stem>-<8 hex digits>``."""
    return f"{stem}-{secrets.token_hex(4)}"


def store_request(home: Home, decision: Decision, claims: BoxClaims, asked_by: str = "") -> Request:
    """Remember that somebody asks for a verb. It allows nothing. The same question is stored once."""
    now = wall_s()
    for known in listed(home).requests:
        if known.box_id == claims.box_id and known.decision_digest == decision.digest and known.action == claims.action:
            return known
    made = approvals.request(new_id("ask"), "now", decision, claims, now, 0.0, asked_by)
    home.ledger.append("request", **made.to_wire())
    return made


def approve_request(home: Home, id: str, terminal: Terminal | None) -> Approval:
    """Turn a stored request into an approval for 15 minutes and one use, by typing the box's name at a terminal.

    Raises UnknownName, ApprovalInvalid (too old) and ApprovalNeeded (no terminal, or another word was typed).
    """
    state = home.state()
    fitting = [key for key in state.requests if key.startswith(id)] if id else []
    if len(fitting) != 1 and id not in state.requests:
        raise errors.UnknownName.of("request", id, state.requests, next=[["outlive", "approve"]])
    asked = state.request(id if id in state.requests else fitting[0])
    assert asked is not None
    if not asked.made_s <= wall_s() < asked.until_s:
        raise errors.ApprovalInvalid(
            f"the request {asked.id} is too old", request=asked.id, next=[["outlive", "down", asked.box]]
        )
    prompt = (
        f"{asked.action} {asked.box} ({asked.provider_id or asked.box_id[:8]}), asked {_ago(asked.made_s)} ago"
        f"{' by ' + asked.asked_by if asked.asked_by else ''}\n"
        f"runs there: {', '.join(asked.runs) or 'none'}\n"
        f"It holds for 15 minutes and only while the evidence stays as it was shown.\nType {asked.box} to approve: "
    )
    typed = types_name(terminal, prompt, asked.box)
    if has_person(terminal) and not typed:
        raise errors.ApprovalNeeded("not approved: the box's name was not typed", request=asked.id, safe=_SAFE)
    given = approvals.approve(asked, new_id("ok"), wall_s(), typed)
    home.ledger.append("approval", **given.to_wire())
    return given


_SAFE = "Nothing was stopped or deleted."


def standing(
    home: Home,
    word: str,
    *,
    until: str,
    when_proved: bool,
    terminal: Terminal | None,
    action: str | None = None,
    purge: bool = False,
) -> Approval:
    """Allow ``down`` of a box in advance, for the time when every clause is green on fresh evidence.

    Bound to action, box, runs and what they must leave; any change voids it. Raises UsageError (no ``--when-proved``,
    bad time), PlaceError when the box cannot be asked what is on it, ApprovalNeeded without a terminal.
    """
    if not when_proved:
        raise errors.UsageError(
            "in advance only `--when-proved` can be approved",
            next=[["outlive", "approve", "down", word or "BOX", "--when-proved", "--until", until or "08:00"]],
        )
    now = wall_s()
    end_s = until_s(until, now)
    place = open_place(home, home.box_of(word))
    try:
        gate_action, verb = action_of(place.platform, action, purge)
        if gate_action == "detach":
            raise errors.UsageError(f"`down` of {place.name} only detaches; that needs no approval")
        found = gather(home, place, gate_action, verb)
    finally:
        place.close()
    if found.unreachable is not None:
        raise found.unreachable
    claims = found.claims
    decision = decide(claims, (), None, now)
    runs = "; ".join(
        f"{r.run} ({r.state}) must leave {', '.join(r.roster) or 'what it makes'}" for r in claims.runs or ()
    )
    prompt = (
        f"{claims.verb} {claims.box} by itself, once every clause is green, until {_clock(end_s)}\n"
        f"runs there: {runs or 'none'}\n{decision.clause(7).sentence}\nType {claims.box} to approve: "
    )
    typed = types_name(terminal, prompt, claims.box)
    if has_person(terminal) and not typed:
        raise errors.ApprovalNeeded("not approved: the box's name was not typed", safe=_SAFE)
    given = approvals.mint("standing", new_id("ok"), decision, claims, now, typed, end_s)
    home.ledger.append("approval", **given.to_wire())
    return given


def listed(home: Home) -> Pending:
    """Return what waits for a person and what is still allowed."""
    now, state = wall_s(), home.state()
    requests = [r for r in (state.request(i) for i in state.requests) if r is not None and r.made_s <= now < r.until_s]
    given = [a for a in (state.approval(i) for i in state.approvals) if a is not None]
    return Pending(requests, [a for a in given if a.uses_left > 0 and now < a.until_s])


def revoke(home: Home, id: str) -> None:
    """Take an approval back. Raises UnknownName; ApprovalInvalid when it was used already."""
    known = home.state().approvals
    if id not in known:
        raise errors.UnknownName.of("approval", id, known)
    use_approval(home.ledger, id)
    home.ledger.append("note", text=f"approval {id} was taken back", box=str(known[id].get("box", "")))


def until_s(text: str, now_s: float) -> float:
    """Return the wall time of ``08:00`` (the next one, local), ``+6h`` or ``2026-08-01T08:00``. Raises UsageError."""
    text = text.strip()
    try:
        if text.startswith("+"):
            return now_s + seconds(text[1:])
        now = datetime.datetime.fromtimestamp(now_s).astimezone()
        if re.fullmatch(r"\d{1,2}:\d{2}", text):
            hour, minute = (int(part) for part in text.split(":"))
            end = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
            return (end if end > now else end + datetime.timedelta(days=1)).timestamp()
        found = datetime.datetime.fromisoformat(text)
        end_s = (found if found.tzinfo is not None else found.astimezone()).timestamp()
    except ValueError as error:
        raise errors.UsageError(
            f"not a time: {text!r}; write 08:00, +6h or 2026-08-01T08:00", next=[["outlive", "approve", "--help"]]
        ) from error
    if end_s <= now_s:
        raise errors.UsageError(f"{text} is over already")
    return end_s


def _clock(at_s: float) -> str:
    return f"{datetime.datetime.fromtimestamp(at_s):%Y-%m-%d %H:%M}"


def _ago(at_s: float) -> str:
    age_s = max(0.0, wall_s() - at_s)
    return f"{age_s / 3600:.1f} h" if age_s >= 3600 else f"{age_s / 60:.0f} min" if age_s >= 60 else f"{age_s:.0f} s"
