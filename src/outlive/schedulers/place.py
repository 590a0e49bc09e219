"""The contract of a place: what verbs may rely on, whether it is a box or a queue.

* **Verbs ask for capabilities**, by ``need``, before they do anything; nothing asks what kind a place is. What is there
  is in ``capabilities``; for everything else ``why_not`` has the reason, and the verb ends with "not here, because ..."
  (NotHere, 4).
* **Knowing costs nothing.** Name, capabilities and reasons are told without asking anybody; a place that does not
  answer has the same ones. Opening a place connects to nothing.
* **One scheduler.** Detached work goes through ``scheduler`` (``schedulers.base``) and nothing else; a place can do
  what its scheduler can, and what its platform and storage add.
* **The right place or none.** Every call checks that the far end is this place and not another at its address
  (PlaceError).
* ``close`` may be called twice, and ends nothing that runs there.
"""

from __future__ import annotations

from typing import Protocol

from outlive import errors
from outlive.schedulers.base import CAPABILITIES, Scheduler


class Place(Protocol):
    """A box or a queue, opened."""

    @property
    def name(self) -> str:
        """What the user calls it."""
        ...

    @property
    def capabilities(self) -> frozenset[str]:
        """Those of ``base.CAPABILITIES`` that are here."""
        ...

    @property
    def scheduler(self) -> Scheduler:
        """What turns a command into detached work here."""
        ...

    def why_not(self, capability: str) -> str:
        """Return why a capability is not here, as a part of a sentence; "" where it is."""
        ...

    def need(self, capability: str, wanted: str) -> None:
        """Raise NotHere unless the capability is here. ``wanted`` is what it was for: a verb or a request."""
        ...

    def close(self) -> None:
        """End what this object opened."""
        ...


def need(place: Place, capability: str, wanted: str) -> None:
    """Raise NotHere unless a place has a capability; ValueError for a word that is none."""
    if capability not in CAPABILITIES:
        raise ValueError(f"no capability is called {capability!r}")
    because = place.why_not(capability)
    if because:
        raise errors.NotHere.of(wanted, capability, because, place=place.name)
