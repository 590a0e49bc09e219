"""A box that can be talked to: its record, its platform's facts, and the agent on it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from outlive import errors
from outlive.ledger import Box
from outlive.platforms.load import load as load_platform
from outlive.platforms.load import user_dir
from outlive.platforms.model import Platform
from outlive.runs.home import Home
from outlive.transport.address import parse
from outlive.transport.agent import Agent, Refused
from outlive.transport.open import open_exec


@dataclass
class Place:
    """One box, opened. ``capabilities`` are what verbs ask for; nothing asks what kind it is."""

    home: Home
    box: Box
    agent: Agent
    platform: Platform

    @property
    def name(self) -> str:
        return self.box.name

    @property
    def capabilities(self) -> frozenset[str]:
        """Return those of ``exec files signal meter live_log durable`` that this place has."""
        found = {"exec", "files", "signal", "live_log"}
        if self.platform.meter_stop_verb != "none" and self.platform.verb(self.platform.meter_stop_verb).api:
            found.add("meter")
        if self.box.facts.get("durable"):
            found.add("durable")
        return frozenset(found)

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

    def explain(self, refused: Refused) -> errors.OutliveError:
        """Turn a box's refusal into an error with what is safe and what to type."""
        facts = refused.facts
        if refused.code == "other_box":
            return errors.PlaceError(
                f"another machine answers at the address of {self.name} (id {facts.get('box_id') or 'unknown'})",
                place=self.name,
                safe=f"Nothing was done. What was on {self.name} may still be where it was, under another address.",
                next=[
                    ["outlive", "up", self.box.address, "--name", f"{self.name}-new"],
                    ["outlive", "up", self.name, "--at", "ADDRESS"],
                ],
            )
        if refused.code == "run_alive" and facts.get("differences"):
            return errors.SpecDiffers(
                f"{facts['run']} is {facts['state']}, and this job has another spec",
                why=facts["differences"],
                safe="The run goes on unchanged.",
                next=[["outlive", "watch", facts["run"]], ["outlive", "stop", facts["run"]]],
            )
        if refused.code == "run_alive":
            return errors.RunAlive(
                str(refused), safe="Nothing was deleted.", next=[["outlive", "watch"], ["outlive", "stop"]]
            )
        if refused.code == "os" and facts.get("errno") in (28, 122):
            return errors.NoSpace(
                f"{self.name}: {refused}",
                path=self.box.root,
                safe="What was there before is unchanged.",
                next=[["outlive", "ssh", self.name]],
            )
        if refused.code == "no_call":
            return errors.WireMismatch(f"{self.name}: {refused}", place=self.name, next=[["outlive", "up", self.name]])
        return errors.CheckFailed(f"{self.name}: {refused}", safe="Nothing else was changed.")

    def close(self) -> None:
        self.agent.exec.close()


def open_place(home: Home, box: Box) -> Place:
    """Return the place of a known box. Connects to nothing yet."""
    exec_ = open_exec(parse(box.address), state_dir=home.dir, identity=box.box_id or None, config_path=home.ssh_config)
    python = str(box.facts.get("python") or "python3")
    platform = load_platform(box.platform or "ssh", overrides=user_dir())
    return Place(home, box, Agent(exec_, box.root, python), platform)


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
