"""The bare scheduler: our keeper and supervisor on a box, spoken to through our program there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outlive import errors
from outlive.schedulers.base import PARTS, Part, Polled, Reply, Status, Submitted
from outlive.schedulers.refusals import At, explain
from outlive.transport.agent import Caller, Frame, Refused
from outlive.wire.clock import wall_s

CAPABILITIES = frozenset({"exec", "files", "live_log", "signal"})
AHEAD_S = 30.0
"""A box whose clock differs by more is told so with each status: times of its records are by its clock."""
_WHY_NOT = {
    "durable": "our supervisor brings no storage of its own",
    "meter": "our supervisor works on the box; what bills is the platform",
}


class BareScheduler:
    """``base.Scheduler`` over an agent. Holds nothing but where the box is."""

    def __init__(self, agent: Caller, at: At) -> None:
        self._agent, self._at = agent, at

    @property
    def capabilities(self) -> frozenset[str]:
        """See ``base.Scheduler.capabilities``."""
        return CAPABILITIES

    def why_not(self, capability: str) -> str:
        """See ``base.Scheduler.why_not``."""
        return "" if capability in CAPABILITIES else _WHY_NOT[capability]

    def submit(
        self, token: str, spec: Mapping[str, Any], payload: Mapping[str, Any], *, wait_s: float, hold: bool = False
    ) -> Submitted:
        """See ``base.Scheduler.submit``."""
        request = {"token": token, "spec": dict(spec), "payload": dict(payload), "wait_s": wait_s, "hold": hold}
        answer = self._call("run_start", request, wait_s + 60)
        return Submitted(answer["run"], answer["how"], answer["status"])

    def wake(self, run: str, payload: Mapping[str, Any]) -> Status:
        """See ``base.Scheduler.wake``."""
        status: Status = self._call("run_wake", {"run": run, "payload": dict(payload)}, 60)["status"]
        return status

    def poll(
        self,
        runs: Mapping[str, Mapping[str, int]] | None,
        nonce: str,
        *,
        limit_bytes: int = 4 << 20,
        timeout_s: float = 20.0,
    ) -> Polled:
        """See ``base.Scheduler.poll``."""
        wanted = None if runs is None else {run: dict(offsets) for run, offsets in runs.items()}
        frames = self._frames("poll", {"nonce": nonce, "runs": wanted, "limit_bytes": limit_bytes}, timeout_s)
        head = frames[0][0] if frames else {}
        if head.get("t") != "box" or head.get("nonce") != nonce:
            raise errors.Unreachable(f"{self._at.name} did not answer this question but another", place=self._at.name)
        ahead_s = float(head.get("wall_s", wall_s())) - wall_s()
        statuses: dict[str, Status] = {}
        parts: dict[str, dict[str, Part]] = {}
        absent = set()
        for header, payload in frames[1:]:
            if header["t"] == "run" and header.get("absent"):
                absent.add(header["run"])
            elif header["t"] == "run":
                statuses[header["run"]] = header["status"]
                if abs(ahead_s) > AHEAD_S:
                    statuses[header["run"]]["clock_ahead_s"] = round(ahead_s, 1)
            elif header["t"] in PARTS:
                piece = Part(int(header["from"]), payload, int(header["size"]))
                parts.setdefault(header["run"], {})[header["t"]] = piece
        return Polled(head, statuses, parts, frozenset(absent))

    def ask(self, run: str, request: Mapping[str, Any], *, wait_s: float) -> Reply:
        """See ``base.Scheduler.ask``."""
        reply = self._call("run_ask", {"run": run, "ask": dict(request), "wait_s": wait_s}, wait_s + 30)
        return Reply(reply["answer"], reply["status"])

    def fence(self, run: str, by: Mapping[str, Any]) -> Status:
        """See ``base.Scheduler.fence``."""
        status: Status = self._call("fence", {"run": run, "by": dict(by)}, 60)["status"]
        return status

    def manifest(self, run: str, *, timeout_s: float = 120.0) -> dict[str, Any]:
        """See ``base.Scheduler.manifest``."""
        return self._call("run_manifest", {"run": run}, timeout_s)

    def _call(self, name: str, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        try:
            return self._agent.call(name, dict(request, box_id=self._at.box_id), timeout_s=timeout_s)
        except Refused as refused:
            raise explain(refused, self._at) from refused

    def _frames(self, name: str, request: dict[str, Any], timeout_s: float) -> list[Frame]:
        try:
            return self._agent.frames(name, dict(request, box_id=self._at.box_id), timeout_s=timeout_s)
        except Refused as refused:
            raise explain(refused, self._at) from refused
