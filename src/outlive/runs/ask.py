"""Requests to a run: stop, save now, extend its lease, go on, end a hung process."""

from __future__ import annotations

import getpass
import socket
import uuid
from dataclasses import dataclass
from typing import Any

from outlive import errors
from outlive.ledger import Run
from outlive.runs.home import Home
from outlive.runs.place import Place, open_place


@dataclass(frozen=True)
class Answer:
    """What the box answered. ``answered`` is False when the request is there and no answer came in time."""

    run: str
    box: str
    ok: bool
    text: str
    answered: bool
    status: dict[str, Any]


def ask(home: Home, record: Run, kind: str, *, wait_s: float = 8.0, **fields: Any) -> Answer:
    """Put a request into the run's inbox and wait a bounded time for the answer. Raises PlaceError.

    Asking twice is asking once more: every request is harmless to repeat.
    """
    place = open_place(home, home.box_of(record.box))
    try:
        return ask_place(place, record.run, kind, wait_s=wait_s, **fields)
    finally:
        place.close()


def ask_place(place: Place, run: str, kind: str, *, wait_s: float = 8.0, **fields: Any) -> Answer:
    """Like ``ask`` for an open place."""
    request = dict(
        fields, id=f"{kind}-{uuid.uuid4().hex[:12]}", kind=kind, by=f"{getpass.getuser()}@{socket.gethostname()}"
    )
    reply = place.scheduler.ask(run, request, wait_s=wait_s)
    answer = reply.answer
    if answer is None:
        return Answer(
            run,
            place.name,
            False,
            "asked; no answer yet, it will be read by the run's supervisor",
            False,
            reply.status,
        )
    return Answer(run, place.name, bool(answer["ok"]), str(answer["text"]), True, reply.status)


def stop(home: Home, record: Run, *, grace_s: float | None = None, wait_s: float = 60.0) -> Answer:
    """Ask a run to stop and wait until it has ended or ``wait_s`` is over."""
    import time

    fields = {} if grace_s is None else {"grace_s": grace_s}
    place = open_place(home, home.box_of(record.box))
    try:
        answer = ask_place(place, record.run, "stop", **fields)
        until = time.monotonic() + wait_s
        status = answer.status
        while not status["ended"] and time.monotonic() < until:
            time.sleep(0.5)
            status = place.scheduler.poll({record.run: {}}, uuid.uuid4().hex).statuses.get(record.run, status)
        home.ledger.append(
            "run", run=record.run, box=place.name, job=status["job"], spec_digest=status["spec"], state=status["state"]
        )
        return Answer(record.run, place.name, answer.ok, answer.text, answer.answered, status)
    finally:
        place.close()


def extend(home: Home, record: Run, *, add_s: float | None = None, max_s: float | None = None) -> Answer:
    """Give a run more time: ``add_s`` more, or ``max_s`` in all. Raises Refused when it has no lease."""
    answer = ask(home, record, "extend", add_s=add_s, max_s=max_s)
    if answer.answered and not answer.ok:
        raise errors.Refused(answer.text, safe="The run goes on unchanged.")
    return answer
