"""A box that can be talked to: its record, its platform's facts, and the agent on it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from outlive import errors
from outlive.ledger import Box
from outlive.runs.home import Home
from outlive.schedulers.base import CAPABILITIES, Scheduler
from outlive.schedulers.open import open_scheduler
from outlive.schedulers.place import need
from outlive.schedulers.refusals import At, explain
from outlive.transport.address import parse
from outlive.transport.again import Memory
from outlive.transport.agent import Agent, Refused
from outlive.transport.open import open_exec

if TYPE_CHECKING:
    from outlive.platforms.model import Platform


@dataclass
class Place:
    """One box, opened. ``capabilities`` are what verbs ask for; nothing asks what kind it is."""

    home: Home
    box: Box
    agent: Agent
    known_platform: Platform | None = None

    @cached_property
    def platform(self) -> Platform:
        """The facts of who lends it. Read when somebody asks: a look at the box does not."""
        if self.known_platform is not None:
            return self.known_platform
        from outlive.platforms.load import load, user_dir

        return load(self.box.platform or "ssh", overrides=user_dir())

    @property
    def name(self) -> str:
        return self.box.name

    @property
    def capabilities(self) -> frozenset[str]:
        """Return those of ``exec files signal meter live_log durable`` that this place has."""
        return frozenset(word for word in CAPABILITIES if not self.why_not(word))

    def why_not(self, capability: str) -> str:
        """See ``schedulers.place.Place.why_not``: the platform's facts and `up` add to what the scheduler can do."""
        if capability == "meter" and not self.platform.has_meter:
            return f"nothing bills on {self.platform.id}"
        if capability == "meter":
            verb = self.platform.verb(self.platform.meter_stop_verb)
            return "" if verb.api else f"`{verb.name}` of {self.platform.id} is done by hand, in its console"
        if capability == "durable":
            return "" if self.box.facts.get("durable") else "no storage that outlives the box is known (`up --durable`)"
        return self.scheduler.why_not(capability)

    def need(self, capability: str, wanted: str) -> None:
        """See ``schedulers.place.Place.need``."""
        need(self, capability, wanted)

    @cached_property
    def scheduler(self) -> Scheduler:
        """What turns a command into detached work here."""
        return open_scheduler(str(self.box.facts.get("scheduler") or "bare"), self.agent, self.at)

    @property
    def at(self) -> At:
        """Where the box is: what every call is checked against."""
        return At(self.box.name, self.box.box_id, self.box.address, self.box.root)

    @property
    def is_local(self) -> bool:
        """Whether the box is this machine."""
        return parse(self.box.address).kind == "local"

    def call(self, name: str, request: dict[str, Any] | None = None, *, timeout_s: float = 60.0) -> dict[str, Any]:
        """Call the agent, sure that it is this box and no other. Errors are those a user can read."""
        try:
            return self.agent.call(name, dict(request or {}, box_id=self.box.box_id), timeout_s=timeout_s)
        except Refused as refused:
            raise self.explain(refused) from refused

    def frames(self, name: str, request: dict[str, Any], *, timeout_s: float = 60.0) -> list[Any]:
        """Like ``call``, for replies of several frames."""
        try:
            return self.agent.frames(name, dict(request, box_id=self.box.box_id), timeout_s=timeout_s)
        except Refused as refused:
            raise self.explain(refused) from refused

    def post(self, name: str, request: dict[str, Any]) -> None:
        """Call without use for the answer; inside ``talking`` without waiting for it."""
        from outlive.transport.talk import Talk

        if isinstance(self.agent, Talk):
            self.agent.post(name, dict(request, box_id=self.box.box_id))
        else:
            self.call(name, request, timeout_s=20.0)

    @contextlib.contextmanager
    def talking(self) -> Iterator[Place]:
        """Return the same place, whose calls share one program on the box until the block ends."""
        from outlive.transport.talk import Talk

        with Talk.of(self.agent) as talk:
            yield replace(self, agent=talk)

    def explain(self, refused: Refused) -> errors.OutliveError:
        """Turn a box's refusal into an error with what is safe and what to type."""
        return explain(refused, self.at)

    def close(self) -> None:
        self.agent.exec.close()


def open_place(home: Home, box: Box) -> Place:
    """Return the place of a known box. Connects to nothing yet."""
    exec_ = open_exec(parse(box.address), state_dir=home.dir, identity=box.box_id or None, config_path=home.ssh_config)
    python = str(box.facts.get("python") or "python3")
    memory = Memory(home.dir / "polls", box.box_id, box.root) if box.box_id else None
    return Place(home, box, Agent(exec_, box.root, python, memory=memory))


def secrets_of(names: dict[str, str]) -> dict[str, str]:
    """Return the values of declared secrets from this client's environment.

    ``names``: variable of the work -> variable here. Raises UsageError naming every one that is not set.
    """
    missing = [source for source in names.values() if source not in os.environ]
    if missing:
        raise errors.UsageError(
            f"not set in this shell: {', '.join(missing)}",
            safe="Nothing was pushed or started.",
            next=[["export", f"{name}=..."] for name in missing],
        )
    return {name: os.environ[source] for name, source in names.items()}
