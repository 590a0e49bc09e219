"""What our program on a box refuses, as errors that a person can read: one table for all who call it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from outlive import errors
from outlive.transport.agent import Refused


@dataclass(frozen=True)
class At:
    """Where a box is, for identity and for sentences."""

    name: str
    box_id: str
    address: str
    root: str


def explain(refused: Refused, at: At) -> errors.OutliveError:
    """Turn a box's refusal into an error with what is safe and what to type."""
    tell = _TOLD.get(refused.code)
    found = tell(refused, refused.facts, at) if tell is not None else None
    return found or errors.CheckFailed(f"{at.name}: {refused}", safe="Nothing else was changed.")


def _other_box(refused: Refused, facts: dict[str, Any], at: At) -> errors.OutliveError:
    return errors.PlaceError(
        f"another machine answers at the address of {at.name} (id {facts.get('box_id') or 'unknown'})",
        place=at.name,
        safe=f"Nothing was done. What was on {at.name} may still be where it was, under another address.",
        next=[["outlive", "up", at.address, "--name", f"{at.name}-new"], ["outlive", "up", at.name, "--at", "ADDRESS"]],
    )


def _run_alive(refused: Refused, facts: dict[str, Any], at: At) -> errors.OutliveError:
    if facts.get("differences"):
        return errors.SpecDiffers(
            f"{facts['run']} is {facts['state']}, and this job has another spec",
            why=facts["differences"],
            safe="The run goes on unchanged.",
            next=[["outlive", "watch", facts["run"]], ["outlive", "stop", facts["run"]]],
        )
    return errors.RunAlive(str(refused), safe="Nothing was deleted.", next=[["outlive", "watch"], ["outlive", "stop"]])


def _no_run(refused: Refused, facts: dict[str, Any], at: At) -> errors.OutliveError:
    return errors.UnknownName(
        f"{at.name}: {refused}",
        safe="This says nothing about copies that were pulled.",
        next=[["outlive", "ps"]],
    )


def _bad_request(refused: Refused, facts: dict[str, Any], at: At) -> errors.OutliveError:
    return errors.UsageError(f"{at.name}: {refused}", safe="Nothing was started.")


def _os(refused: Refused, facts: dict[str, Any], at: At) -> errors.OutliveError | None:
    if facts.get("errno") in (5, 30):
        return errors.PlaceError(
            f"the disk of {at.name} takes no writes any more: {refused}",
            place=at.name,
            safe="Nothing was started or deleted. What is on it can be read as long as it answers: pull first.",
            next=[["outlive", "pull"], ["outlive", "ssh", at.name]],
        )
    if facts.get("errno") not in (28, 122):
        return None
    return errors.NoSpace(
        f"{at.name}: {refused}",
        path=at.root,
        safe="What was there before is unchanged.",
        next=[["outlive", "ssh", at.name]],
    )


def _no_space(refused: Refused, facts: dict[str, Any], at: At) -> errors.OutliveError:
    return errors.NoSpace(
        f"{at.name}: {refused}",
        path=at.root,
        bytes_needed=facts.get("bytes_needed"),
        bytes_free=facts.get("bytes_free"),
        inodes_needed=facts.get("inodes_needed"),
        inodes_free=facts.get("inodes_free"),
        safe="Nothing was started; what was there before is unchanged.",
        next=[["outlive", "ssh", at.name]],
    )


def _no_call(refused: Refused, facts: dict[str, Any], at: At) -> errors.OutliveError:
    return errors.WireMismatch(f"{at.name}: {refused}", place=at.name, next=[["outlive", "up", at.name]])


_TOLD: dict[str, Callable[[Refused, dict[str, Any], At], errors.OutliveError | None]] = {
    "bad_ask": _bad_request,
    "bad_spec": _bad_request,
    "no_call": _no_call,
    "no_run": _no_run,
    "no_space": _no_space,
    "os": _os,
    "other_box": _other_box,
    "run_alive": _run_alive,
}
