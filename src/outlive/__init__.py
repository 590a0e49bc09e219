"""outlive: makes a GPU job's result outlive the machine it ran on.

Importing this package is cheap and works on Python 3.8, because the travelling packages below it
are imported on boxes; the names of ``__all__`` are the public library and are loaded on first use.
"""

from __future__ import annotations

TYPE_CHECKING = False  # a type checker takes it for true; importing typing would double the start of every command
if TYPE_CHECKING:
    from typing import Any, Dict, List

__version__ = "0.1.0"

_PUBLIC: Dict[str, str] = {
    "Home": "outlive.runs.home",
    "Job": "outlive.runs.job",
    "adopt": "outlive.runs.adopt",
    "ask": "outlive.runs.ask",
    "down": "outlive.runs.down",
    "follow": "outlive.runs.watch",
    "load_job": "outlive.runs.job:load",
    "look_all": "outlive.runs.look",
    "move": "outlive.runs.move",
    "open_place": "outlive.runs.place",
    "pull": "outlive.runs.pull",
    "run": "outlive.runs.run",
    "up": "outlive.runs.up",
}
"""Public name -> module, or ``module:name`` where the two differ."""

__all__ = ["__version__"]
__all__.extend(sorted(_PUBLIC))


def __getattr__(name: str) -> Any:
    where = _PUBLIC.get(name)
    if where is None:
        raise AttributeError("module 'outlive' has no attribute %r" % name)
    from importlib import import_module

    module, _, real = where.partition(":")
    return getattr(import_module(module), real or name)


def __dir__() -> List[str]:
    return __all__
