"""The demo's eye on its two runs: one exchange a second, in a thread, so that the story can act meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from outlive import errors
from outlive.runs.place import Place

PARTS = ("journal", "metrics")
EVERY_S = 0.8


class Lookout:
    """What is known of some runs of one box, kept fresh. Read its tables from any thread; they only grow.

    ``seen`` counts complete looks; ``trouble`` is what ended the looking. Each whole metric record goes to
    ``on_point(run, record)`` once.
    """

    def __init__(self, place: Place, runs: list[str], on_point: Callable[[str, dict[str, Any]], None]) -> None:
        self.place, self.runs, self._on_point = place, runs, on_point
        self.status: dict[str, dict[str, Any]] = {}
        self.journal: dict[str, list[dict[str, Any]]] = {run: [] for run in runs}
        self.points: dict[str, list[dict[str, Any]]] = {run: [] for run in runs}
        self.seen = 0
        self.trouble: errors.OutliveError | None = None
        self._offsets = {run: dict.fromkeys(PARTS, 0) for run in runs}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-lookout", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the looking; returns when no exchange is under way."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(30)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.look()
            except errors.OutliveError as error:
                self.trouble = error
                return
            self._over.wait(EVERY_S)

    def look(self) -> None:
        """One exchange. Raises PlaceError."""
        run = ""
        for header, payload in self.place.frames("poll", {"runs": self._offsets}, timeout_s=30):
            if header["t"] == "run":
                run = header["run"]
                self.status[run] = header["status"]
            elif header["t"] in PARTS and int(header["from"]) == self._offsets[run][header["t"]]:
                self._take(run, header["t"], payload)
        self.seen += 1

    def _take(self, run: str, part: str, data: bytes) -> None:
        whole = data[: data.rfind(b"\n") + 1]  # a line that is being written comes whole with the next look
        self._offsets[run][part] += len(whole)
        for raw in whole.splitlines():
            record = json.loads(raw)
            if part == "journal":
                self.journal[run].append(record)
            elif "loss" in record and "step" in record:
                self.points[run].append(record)
                self._on_point(run, record)
