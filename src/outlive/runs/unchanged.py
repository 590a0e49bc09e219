"""A second pull of what is here already: one question to the box, one look at each file here, no file read.

The box answers with a tag over what its file system says of all that a look depends on; here each file must have the
stamp that it had when its digest was compared. Where either differs the pull goes its full way.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlive.runs.result import stamp
from outlive.sync.fetch import OURS

if TYPE_CHECKING:
    from outlive.ledger import LedgerState
    from outlive.runs.home import Home
    from outlive.runs.place import Place

SCHEMA = "outlive/pulled/1"


class Last:
    """What the last whole pull of a run into ``target`` left, and whether it still stands."""

    def __init__(self, home: Home, place: Place, run: str, target: Path) -> None:
        name = hashlib.sha256(os.fsencode(f"{run}\0{target}")).hexdigest()[:24]
        self.path = home.dir / "pulled" / f"{name}.json"
        self.place, self.run, self.target = place, run, target
        self.receipt: dict[str, Any] = {}
        """The last pull's, once it is known that all it says is here."""
        self._looking: threading.Thread | None = None
        self._here = False

    def begin(self, state: LedgerState) -> str:
        """Begin to look at what is here; return the tag to ask the box about, "" where there is nothing to ask."""
        try:
            record = json.loads(self.path.read_bytes())
        except (OSError, ValueError):
            return ""
        if not isinstance(record, dict) or record.get("about") != self._about():
            return ""

        def look() -> None:
            self._here = self._stands(record, state)

        self._looking = threading.Thread(target=look, daemon=True)
        self._looking.start()
        return str(record["tag"])

    def here(self) -> bool:
        """Return whether each file here is still what it was."""
        if self._looking is not None:
            self._looking.join()
        return self._here

    def _about(self) -> dict[str, Any]:
        """All that the outcome depends on beside the files: who asks whom, and what is known of the box."""
        box = self.place.box
        facts = json.dumps([box.box_id, box.root, box.platform, box.address, box.facts], sort_keys=True, default=str)
        digest = hashlib.sha256(facts.encode("utf-8", "surrogateescape")).hexdigest()
        return {"schema": SCHEMA, "run": self.run, "target": str(self.target), "box": digest}

    def _stands(self, record: dict[str, Any], state: LedgerState) -> bool:
        try:
            if stamp(self.target / OURS / "receipt.json") != record["receipt"]:
                return False
            self.receipt = json.loads((self.target / OURS / "receipt.json").read_bytes())
            known = state.runs.get(self.run)
            name, top = f"here:{self.target}", f"{self.target}/"
            copies = {c["path"]: c for c in (known.copies if known is not None else ()) if c["place"] == name}
            wanted = {f["path"]: f["sha256"] for f in self.receipt["files"]}
            for path in [*wanted, *record["own"]]:
                copy = copies.get(path)
                if copy is None or copy["sha256"] != wanted.get(path, copy["sha256"]):
                    return False
                info = os.lstat(top + path)
                now = [info.st_size, info.st_mtime_ns, info.st_ctime_ns]
                if not stat.S_ISREG(info.st_mode) or copy.get("stamp") != now:
                    return False
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return True

    def remember(self, tag: str, own: list[str]) -> None:
        """Note that all of a pull is here. ``own``: the names of logs and records, below the target."""
        receipt = stamp(self.target / OURS / "receipt.json")
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        record = {"about": self._about(), "tag": tag, "receipt": receipt, "own": own}
        aside = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        aside.write_bytes(json.dumps(record).encode("ascii"))  # a torn one is none: nothing waits for the disk
        os.replace(aside, self.path)
