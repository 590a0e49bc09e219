"""Conformance of a place, as plain functions, and an in-memory twin that passes them.

Needs no test framework: each ``check_*`` takes a fresh place and raises AssertionError or whatever the place raised. A
place must pass them whether or not it can be reached; the checks send nothing. What its scheduler does is checked by
``outlive.testing.scheduler``.
"""

from __future__ import annotations

from collections.abc import Callable

from outlive.errors import NotHere
from outlive.schedulers.base import CAPABILITIES, Scheduler
from outlive.schedulers.place import Place, need
from outlive.testing.memory_queue import MemoryQueue
from outlive.testing.memory_scheduler import MemoryScheduler

__all__ = ["PLACE_CHECKS", "MemoryBoxPlace", "MemoryQueuePlace", "run_all_places"]


class MemoryBoxPlace:
    """A box in memory: a scheduler that can do everything, and what the platform adds: ``meter``, ``durable``."""

    def __init__(self, scheduler: MemoryScheduler | None = None, *, meter: bool = False, durable: bool = False) -> None:
        self._scheduler = scheduler or MemoryScheduler()
        self._adds = {word for word, there in (("meter", meter), ("durable", durable)) if there}

    @property
    def name(self) -> str:
        """See ``Place.name``."""
        return self._scheduler.place.name

    @property
    def scheduler(self) -> Scheduler:
        """See ``Place.scheduler``."""
        return self._scheduler

    @property
    def capabilities(self) -> frozenset[str]:
        """See ``Place.capabilities``."""
        return self._scheduler.capabilities | self._adds

    def why_not(self, capability: str) -> str:
        """See ``Place.why_not``."""
        return "" if capability in self._adds else self._scheduler.why_not(capability)

    def need(self, capability: str, wanted: str) -> None:
        """See ``Place.need``."""
        need(self, capability, wanted)

    def close(self) -> None:
        """See ``Place.close``."""


class MemoryQueuePlace(MemoryBoxPlace):
    """A queue in memory."""

    def __init__(self, scheduler: MemoryQueue | None = None, *, meter: bool = False, durable: bool = False) -> None:
        super().__init__(scheduler or MemoryQueue(), meter=meter, durable=durable)


def check_name(place: Place) -> None:
    """It has a name, of one line."""
    assert place.name and place.name == place.name.strip() and "\n" not in place.name


def check_capabilities_are_known_words(place: Place) -> None:
    """They are words of the one table, and the same each time."""
    assert place.capabilities <= set(CAPABILITIES), place.capabilities
    assert place.capabilities == place.capabilities


def check_each_lack_has_a_reason(place: Place) -> None:
    """``why_not`` has a reason, as a part of a sentence, for exactly what is not here."""
    for word in CAPABILITIES:
        reason = place.why_not(word)
        assert bool(reason) == (word not in place.capabilities), (word, reason)
        assert not reason or (reason[-1] not in ".!\n" and "\n" not in reason), reason


def check_need(place: Place) -> None:
    """``need`` lets pass what is here, and says "not here, because ..." of the rest."""
    for word in CAPABILITIES:
        if word in place.capabilities:
            place.need(word, "trying")
            continue
        try:
            place.need(word, "trying")
        except NotHere as error:
            assert (error.capability, error.because, error.place) == (word, place.why_not(word), place.name)
            assert error.what.startswith("trying") and "not here" in error.what and "because" in error.what
            assert error.exit_code == 4 and error.safe
        else:
            raise AssertionError(f"no NotHere for {word}")


def check_unknown_words_are_a_bug(place: Place) -> None:
    """A word that is no capability is the caller's mistake, never "not here"."""
    try:
        place.need("wings", "flying")
    except ValueError:
        return
    raise AssertionError("no ValueError")


def check_it_can_what_its_scheduler_can(place: Place) -> None:
    """The place lacks nothing that its scheduler has, and a scheduler is one object."""
    assert place.scheduler.capabilities <= place.capabilities
    assert place.scheduler is place.scheduler


def check_close_twice(place: Place) -> None:
    """Closing again is harmless; what is known without asking is still known."""
    before = place.capabilities
    place.close()
    place.close()
    assert place.capabilities == before


PLACE_CHECKS: tuple[Callable[[Place], None], ...] = (
    check_name,
    check_capabilities_are_known_words,
    check_each_lack_has_a_reason,
    check_need,
    check_unknown_words_are_a_bug,
    check_it_can_what_its_scheduler_can,
    check_close_twice,
)


def run_all_places(make: Callable[[], Place]) -> dict[str, Exception | None]:
    """Run every check on a place of its own; returns check name to the exception, None where it passed."""
    results: dict[str, Exception | None] = {}
    for check in PLACE_CHECKS:
        place = make()
        try:
            check(place)
            results[check.__name__] = None
        except Exception as problem:  # whatever a place raises is its result here
            results[check.__name__] = problem
        finally:
            place.close()
    return results
