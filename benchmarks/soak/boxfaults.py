"""The faults of boxes that are reached over ssh, by name; like ``faults.py``, and some of those as well."""

from __future__ import annotations

from collections.abc import Callable

import faults as local
from rounds import Case
from sites import Reach


def cut_in_log(case: Case) -> None:
    """connection cut at random bytes while the log is followed"""
    reach = Reach(case)
    for _ in range(4):
        way = case.rng.choice(("cut_up", "cut_down"))
        reach.site.heal()
        reach.site.link.set(**{way: int(600 * 40 ** case.rng.random())})
        reach.look(20.0)
    reach.site.heal()
    reach.settle()


cut_in_log.mode = "talks"  # type: ignore[attr-defined]

SHARED = (
    "adopted",
    "kill_all",
    "kill_in_save",
    "kill_keeper",
    "kill_keeper_and_supervisor",
    "kill_supervisor",
    "kill_supervisor_at_the_end",
    "kill_work",
    "kill_work_and_keeper",
    "kill_work_and_supervisor",
    "stopped_by_two",
    "two_clients_look",
)
"""Faults of ``faults.py`` that are played here as well."""

FAULTS: dict[str, Callable[[Case], None]] = {
    name: value
    for name, value in sorted({**globals(), **{n: local.FAULTS[n] for n in SHARED}}.items())
    if callable(value)
    and getattr(value, "__module__", "") in (__name__, local.__name__)
    and value.__doc__
    and name[0] != "_"
}
