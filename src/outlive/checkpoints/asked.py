"""`outlive checkpoint RUN`: the supervisor leaves a file, and the training saves at its next step."""

import os
from typing import Any, Optional

from outlive.checkpoints.cadence import Cadence

CONTROL_ENV = "OUTLIVE_CONTROL_DIR"
REQUEST = "checkpoint"
LOOK_S = 1.0


class AskedCadence(Cadence):
    """A cadence that also saves when somebody asks. Looks for the request at most once a second."""

    def __init__(self, control: str, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self._path = os.path.join(control, REQUEST)
        self._looked_now_s = float("-inf")
        self._asked = b""

    def due(self, step: int, now_s: float) -> str:
        """Return why to save now, as ``Cadence.due``, or ``asked``."""
        why = super().due(step, now_s)
        if why:
            return why
        if not self._asked and now_s - self._looked_now_s >= LOOK_S:
            self._looked_now_s = now_s
            self._asked = self._read()
        return "asked" if self._asked else ""

    def saved(self, step: int, now_s: float, cost_s: Optional[float] = None) -> None:
        """Note a save; it answers what was asked before it. A request that came meanwhile stays."""
        super().saved(step, now_s, cost_s)
        if self._asked and self._read() == self._asked:
            try:
                os.unlink(self._path)
            except OSError:
                pass  # another rank was faster, or the disk refuses: then it is saved once more
        self._asked = b""

    def _read(self) -> bytes:
        try:
            with open(self._path, "rb") as handle:
                return handle.read(200)
        except OSError:
            return b""
