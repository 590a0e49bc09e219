"""A poll whose answer is "the same": a few commands of the shell there, no interpreter.

A full answer to a poll can come with a mark (``outlive.onbox.mark``) of all that it was made from. It is kept here with
the answer. The next poll of the same question sends the mark along; the box makes it anew from its files and
processes. If it is the same, so is the answer, but for clocks and room, which come along fresh; if it is not, our
program answers in full in the same exchange. So nothing here decides what is true, and nothing heard earlier is
passed on without the box's word, under the nonce of this poll, that it still holds.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outlive.wire.names import DIR

Frame = tuple[dict[str, Any], bytes]
WHOLE_SECONDS_S = 1.5
"""By how much the clocks may differ before it is a jump: the wall clock comes in whole seconds."""
FULL_EVERY_S = 600.0
"""How old a kept answer may be by this machine's clock: then the box's whole word is asked for again."""
_HEX = "0123456789abcdef"
_MADE_OF = {
    "mark": _HEX,
    "pids": "0123456789: ",
    "runs": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/ ",
    "script": _HEX + "quick-.sh",
    "up": "0123456789.",
}
"""What the words of a mark are made of: they go into a command. (Expressions would take longer to make ready.)"""


class Memory:
    """Full answers of one box that came with a mark, a file for each question. A cache: deletable, one client's."""

    def __init__(self, directory: Path, box_id: str, root: str) -> None:
        self._dir, self._whose = directory, f"{box_id} {root}"

    def recall(self, request: Mapping[str, Any]) -> Kept | None:
        """Return what the same question was answered with, None where it cannot be the same again."""
        path = self._path(request)
        try:
            age_s = time.time() - path.stat().st_mtime
            data = json.loads(path.read_bytes())
            kept = Kept(path, data["mark"], data["frames"])
            sound = data["question"] == self._question(request) and all(
                set(kept.mark[key]) <= set(made_of) for key, made_of in _MADE_OF.items()
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return kept if sound and 0 <= age_s < FULL_EVERY_S and kept.continues(request) else None

    def keep(self, request: Mapping[str, Any], frames: list[Frame]) -> list[Frame]:
        """Remember a full answer if it can be had again; return it without its mark."""
        marks = [header for header, _ in frames if header["t"] == "mark"]
        rest = [frame for frame in frames if frame[0]["t"] != "mark"]
        path = self._path(request)
        if not marks or not rest or any(header.get("to") != header.get("size") for header, _ in rest):
            _remove(path)
            return rest
        # the next question begins where this answer ended; the bytes themselves are never asked for again
        ends = [{**header, "from": header["to"]} if "to" in header else header for header, _ in rest]
        plain = [{key: value for key, value in header.items() if key not in ("n", "z")} for header in ends]
        aside = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            text = json.dumps({"question": self._question(request), "mark": marks[-1], "frames": plain})
            aside.write_text(text, "ascii")
            aside.replace(path)
        except OSError:
            _remove(aside)  # without it every answer is a full one
        return rest

    def _path(self, request: Mapping[str, Any]) -> Path:
        # a sum is enough for a name, and hashlib takes longer to load than all of this: the question stands in the file
        return self._dir / f"{zlib.crc32(self._question(request).encode('ascii')):08x}.json"

    def _question(self, request: Mapping[str, Any]) -> str:
        runs = request.get("runs")
        return json.dumps([self._whose, None if runs is None else {run: sorted(runs[run]) for run in sorted(runs)}])


class Kept:
    """One full answer and its mark."""

    def __init__(self, path: Path, mark: dict[str, Any], frames: list[dict[str, Any]]) -> None:
        self._path, self.mark, self._frames = path, mark, frames

    def continues(self, request: Mapping[str, Any]) -> bool:
        """Say whether the question begins everywhere where the answer ended."""
        ends = {(f["run"], f["t"]): f["to"] for f in self._frames if "to" in f}
        asked = {(run, part): at for run, parts in (request.get("runs") or {}).items() for part, at in parts.items()}
        # a part without a file was not answered at all, and is asked for from 0
        return all(ends.get(part, 0) == at for part, at in asked.items())

    def forget(self) -> None:
        _remove(self._path)

    def words(self, root: str, nonce: str, command: list[str]) -> list[str]:
        """Return the command that compares, and answers with ``command`` where something has changed."""
        mark = self.mark
        return ["sh", f"{root}/{DIR}/{mark['script']}", nonce, mark["mark"], mark["pids"], mark["runs"], *command]

    def again(self, same: Mapping[str, Any], nonce: str) -> list[Frame] | None:
        """Return the answer as of now; None where what came along makes no sense (then ask in full)."""
        try:
            on_s = float(same["up"]) - float(self.mark["up"])
            unit, total, free, inodes, free_inodes = (int(word) for word in str(same["space"]).split())
            head = dict(self._frames[0])
            later_s = float(same["wall"]) - int(head["wall_s"])
            if abs(later_s - on_s) <= WHOLE_SECONDS_S:
                later_s = on_s
            head.update(nonce=nonce, boot_s=head["boot_s"] + on_s, wall_s=head["wall_s"] + later_s)
        except (KeyError, ValueError, TypeError, IndexError):
            return None
        if on_s < 0:
            return None
        for key, value in (("bytes", free * unit), ("inodes", free_inodes)):
            if head.get(f"disk_free_{key}") is not None:
                head[f"disk_free_{key}"] = value
        return [(head, b"")] + [(_aged(frame, on_s, later_s), b"") for frame in self._frames[1:]]


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        pass  # it is not there, or the disk takes nothing: then it grows old and is not believed


def _aged(frame: dict[str, Any], on_s: float, later_s: float) -> dict[str, Any]:
    """Return a run's frame with its ages as they are now."""
    if frame["t"] != "run" or "status" not in frame:
        return frame
    status = dict(frame["status"])
    if status.get("attempt_age_s") is not None:
        status["attempt_age_s"] += on_s
    if status.get("work_alive"):
        status["lease_used_s"] += on_s
    for key in ("log_age_s", "metrics_age_s"):
        if status.get(key) is not None:
            # ages of files are differences of wall times; a clock that jumped makes them unknown
            age_s = status[key] + later_s
            status[key] = age_s if age_s >= 0 else None
    return {**frame, "status": status}
