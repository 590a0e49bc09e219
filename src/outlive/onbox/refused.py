"""How a call says no."""

from typing import Any


class Refused(Exception):
    """A call that is understood and not carried out. ``code`` is stable; ``facts`` are for the client's sentence."""

    def __init__(self, code: str, text: str, **facts: Any) -> None:
        super().__init__(text)
        self.code = code
        self.facts = facts
