"""Compression where it pays: per transfer, measured, given up where the line is faster than the processor."""

from __future__ import annotations

import time
from typing import Any

from outlive.wire.frames import deflated

Frame = tuple[dict[str, Any], bytes]

MEASURE_BYTES = 1024 * 1024
"""How much is measured before each decision."""
REST_BYTES, LONGEST_REST_BYTES = 16 * 1024 * 1024, 256 * 1024 * 1024
"""How long a decision against it holds, at first and after many in a row; what comes later may be of another kind."""
SAMPLE_BYTES = 8 * 1024
"""Of each chunk so much is tried first: what does not pack costs next to nothing."""
WORTH = 0.9
"""A payload that stays larger than this share is sent as it is."""


class Squeeze:
    """Turns chunks into ``data`` frames. Tell it how long each write took: that is the line's speed.

    ``sent_bytes`` counts payload bytes as they travelled.
    """

    def __init__(self, on: bool = True) -> None:
        self.on = on
        self.sent_bytes = 0
        self._raw = self._packed = 0
        self._pack_s = self._write_s = 0.0
        self._rest_bytes = 0
        self._next_rest_bytes = REST_BYTES

    def frame(self, chunk: bytes) -> Frame:
        """Return the frame for a chunk."""
        if not self.on or self._rest_bytes > 0:
            self._rest_bytes -= len(chunk)
            self.sent_bytes += len(chunk)
            return {"t": "data"}, chunk
        began_s = time.perf_counter()
        sample = chunk[:SAMPLE_BYTES]
        packed = deflated(chunk) if len(deflated(sample)) < WORTH * len(sample) else chunk
        self._pack_s += time.perf_counter() - began_s
        small = len(packed) < WORTH * len(chunk)
        self._raw += len(chunk)
        self._packed += len(packed) if small else len(chunk)
        self.sent_bytes += len(packed) if small else len(chunk)
        return ({"t": "data", "z": len(chunk)}, packed) if small else ({"t": "data"}, chunk)

    def wrote(self, seconds: float) -> None:
        """Say how long the last frame took to be taken, and decide anew after each MEASURE_BYTES."""
        if not self.on or self._rest_bytes > 0:
            return
        self._write_s += seconds
        if self._raw < MEASURE_BYTES:
            return
        plain_s = self._write_s * self._raw / max(1, self._packed)
        if self._packed > WORTH * self._raw or self._pack_s + self._write_s > plain_s:
            self._rest_bytes = self._next_rest_bytes
            self._next_rest_bytes = min(LONGEST_REST_BYTES, 2 * self._next_rest_bytes)
        else:
            self._next_rest_bytes = REST_BYTES
        self._raw = self._packed = 0
        self._pack_s = self._write_s = 0.0
