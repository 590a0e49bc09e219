"""The display of ``watch`` at a terminal: rows of a view, drawn in place by rich."""

from __future__ import annotations

import sys
from typing import Any

from outlive.cli.printing import columns
from outlive.ledger.secret import Secrets

STYLES = {
    "": "",
    "title": "bold",
    "good": "bold green",
    "bad": "bold red",
    "warn": "yellow",
    "dim": "dim",
    "accent": "cyan",
}
MAX_ROWS = 24


class Live:
    """Draws a picture in place. ``close`` leaves the last frame on the screen."""

    def __init__(self, secrets: Secrets, colour: bool, unicode: bool) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._secrets, self._plain = secrets, not unicode
        self._console = Console(
            file=sys.stdout,
            no_color=not colour,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=False,
            legacy_windows=False,
        )
        self._live = RichLive(console=self._console, auto_refresh=False, vertical_overflow="crop", transient=False)
        self._live.start()

    def draw(self, picture: Any) -> None:
        """Draw the picture as it is now."""
        from rich.text import Text

        height = min(MAX_ROWS, max(5, self._console.size.height) - 2)  # the cursor waits on a line of its own
        text = Text(no_wrap=True, overflow="crop")
        for number, row in enumerate(
            picture.frame(min(columns(), self._console.size.width), height, plain=self._plain)
        ):
            if number:
                text.append("\n")
            for part, role in row:
                text.append(self._secrets.redact(part), style=STYLES[role])
        self._live.update(text, refresh=True)

    def close(self) -> None:
        """End the display and give the terminal back as it was."""
        self._live.stop()
