"""From a scheduler's name to a scheduler: one plain table."""

from __future__ import annotations

from collections.abc import Callable

from outlive import errors
from outlive.schedulers.bare import BareScheduler
from outlive.schedulers.base import Scheduler
from outlive.schedulers.refusals import At
from outlive.transport.agent import Caller


def open_scheduler(name: str, agent: Caller, at: At) -> Scheduler:
    """Return the scheduler of a box, by name. Connects to nothing. Raises UnknownName."""
    if name not in _OPENERS:
        raise errors.UnknownName.of("scheduler", name, _OPENERS)
    return _OPENERS[name](agent, at)


_OPENERS: dict[str, Callable[[Caller, At], Scheduler]] = {
    "bare": BareScheduler,
}
