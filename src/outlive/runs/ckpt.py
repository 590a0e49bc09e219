"""``ckpt``: what checkpoints lie in a directory here, or belong to a run, and whether they can be trusted.

Reads only. Neither the lock nor the index of a directory is touched: it may be asked about while a training writes.
"""

from __future__ import annotations

import os
import posixpath
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from outlive import errors
from outlive.checkpoints import errors as wrong
from outlive.checkpoints.foreign import OWN, Foreign, children, owned, recognise, verify_path
from outlive.checkpoints.index import load, read_index
from outlive.checkpoints.lock import describe, owner
from outlive.checkpoints.record import INDEX, RECORD, read_record
from outlive.checkpoints.verify import Verdict, verify_files
from outlive.runs.home import Home

LEVELS = ("bytes", "structure", "tensors")
MODES = ("min", "max")
UNTOUCHED = "Nothing was changed."


@dataclass
class Row:
    """One checkpoint as it is to be shown. ``verified`` is what was noted earlier, ``verdict`` what was found now."""

    name: str
    path: str
    kind: str
    step: int | None
    bytes: int
    files: int
    wall_s: float
    metrics: dict[str, float] = field(default_factory=dict)
    seq: int | None = None
    pinned: bool = False
    milestone: bool = False
    verified: dict[str, Any] | None = None
    durable: dict[str, Any] | None = None
    verdict: Verdict | None = None


@dataclass
class Listing:
    """What was found. ``where`` is a directory here, or ``BOX:PATH`` of a run; rows are ordered, the newest last."""

    what: str
    where: str
    run: str = ""
    format: str = OWN
    rows: list[Row] = field(default_factory=list)
    bad: list[wrong.Bad] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    metric: str = ""

    @property
    def exit_code(self) -> int:
        """1 when something was refuted, 6 when a check could not be made."""
        said = [row.verdict.ok for row in self.rows if row.verdict is not None]
        if False in said or (self.what == "verify" and self.bad):
            return 1
        return errors.Unconfirmed.exit_code if None in said else 0


def listing(home: Home, word: str) -> Listing:
    """Return the checkpoints of a directory here or of a run. Raises UsageError, PlaceError, CheckFailed."""
    return _find(home, word, "ls")[0]


def verify(home: Home, word: str, names: Sequence[str] = (), level: str = "structure") -> Listing:
    """Read checkpoints (all, or the named ones) and compare them. On a box they are read there, by digest."""
    found, check = _find(home, word, "verify")
    if names:
        known = {row.name: row for row in found.rows}
        for name in names:
            if name not in known and not any(one.name == name for one in found.bad):
                raise errors.UnknownName.of("checkpoint", name, known)
        found.rows = [known[name] for name in names if name in known]
        found.bad = [one for one in found.bad if one.name in names]
    elif not found.rows and not found.bad:
        raise errors.CheckFailed(f"there is no checkpoint in {found.where}", safe=UNTOUCHED)
    for row in list(found.rows):
        row.verdict = check(row, level)
        if row.verdict.ok is False and not names and _gone(found, row):
            found.rows.remove(row)
            found.notes.append(f"{row.name} was removed by its training meanwhile")
    return found


def best(home: Home, word: str, metric: str = "", mode: str = "min") -> Listing:
    """Return the best checkpoint by a metric (the first of val_loss, loss that was recorded). Raises CheckFailed."""
    found, _check = _find(home, word, "best")
    found.metric = metric or next((m for m in ("val_loss", "loss") if any(m in r.metrics for r in found.rows)), "")
    scored = [r for r in found.rows if found.metric in r.metrics and not _refuted(r)]
    if not scored:
        known = sorted({name for row in found.rows for name in row.metrics})
        raise errors.CheckFailed(
            f"no checkpoint of {found.where} has the metric {found.metric or 'val_loss or loss'!r}",
            why=[f"recorded are: {', '.join(known)}" if known else "no metric was recorded with any of them"],
            safe=UNTOUCHED,
        )
    sign = 1.0 if mode == "min" else -1.0
    found.rows = [min(scored, key=lambda r: (sign * r.metrics[found.metric], -found.rows.index(r)))]
    return found


def resume_point(home: Home, word: str, level: str = "") -> Listing:
    """Return the newest checkpoint that is good, read whole. Raises CheckFailed where there is none.

    Without ``level``: digests where they were recorded; files of others have none, so their containers are checked.
    """
    found, check = _find(home, word, "resume-point")
    rows = found.rows
    passed: list[Row] = []
    for row in reversed(rows):
        row.verdict = check(row, level or ("bytes" if row.kind in (OWN, "") else "structure"))
        if row.verdict.ok:
            found.rows = [row]
            found.notes += [f"{bad.name} was passed over: {bad.verdict.why}" for bad in passed if bad.verdict]
            found.bad = []
            return found
        passed.append(row)
    if not passed and not found.bad:
        raise errors.CheckFailed(
            f"no checkpoint was ever recorded in {found.where}; a training begins at step 0 there", safe=UNTOUCHED
        )
    raise errors.CheckFailed(
        f"no checkpoint of {found.where} is good",
        why=[f"{r.name}: {r.verdict.why}" for r in passed if r.verdict] + [f"{b.name}: {b.why}" for b in found.bad],
        safe="Nothing was changed; a training there stops rather than begin again.",
        next=[["outlive", "ckpt", "ls", word]],
    )


Check = Callable[[Row, str], Verdict]


def _find(home: Home, word: str, what: str) -> tuple[Listing, Check]:
    if word and os.path.exists(os.path.expanduser(word)):
        try:
            return _here(os.path.abspath(os.path.expanduser(word)), what)
        except wrong.UnknownFormat as error:
            raise errors.UsageError(error.what, why=[error.next], safe=UNTOUCHED) from error
        except wrong.CheckpointError as error:
            raise errors.CheckFailed(error.what, why=[error.next] if error.next else [], safe=UNTOUCHED) from error
        except OSError as error:
            raise errors.CheckFailed(f"{word} cannot be read: {error.strerror or error}", safe=UNTOUCHED) from error
    if "/" in word or word.startswith((".", "~")):
        raise errors.UsageError(f"there is no {word} here", safe=UNTOUCHED, next=[["outlive", "ckpt", "ls", "RUN"]])
    return _of_run(home, word, what)


# ---- a directory here ----


def _here(path: str, what: str) -> tuple[Listing, Check]:
    if os.path.isdir(path) and not os.path.exists(os.path.join(path, RECORD)):
        if owned(path):
            return _own(path, what)
        try:
            alone: list[Foreign] = [recognise(path)]
        except wrong.UnknownFormat:
            alone = []
        if not alone and _below(path):
            return _own(_below(path), what)
        found = alone or children(path)
        if not found and os.listdir(path):
            recognise(path)  # says what it looked for
    else:
        found = [recognise(path)]
    made = Listing(what, path, format=found[0].kind if found else "none")
    made.rows = [_foreign_row(one) for one in found]
    return made, lambda row, level: verify_path(row.path, level)


def _below(path: str) -> str:
    """Return the one directory of ours directly below, "" for none: people name the output directory."""
    below = [os.path.join(path, name) for name in sorted(os.listdir(path))]
    ours = [one for one in below if os.path.isdir(one) and owned(one)]
    return ours[0] if len(ours) == 1 else ""


def _foreign_row(one: Foreign) -> Row:
    name = os.path.basename(one.path)
    return Row(name, one.path, one.kind, one.step, one.bytes, len(one.files), one.time, dict(one.metrics))


def _own(path: str, what: str) -> tuple[Listing, Check]:
    index = load(path)
    made = Listing(what, path)
    for e in index.entries:
        made.rows.append(
            Row(
                e.name,
                os.path.join(path, e.name),
                OWN,
                e.step,
                e.bytes,
                e.files,
                e.time,
                dict(e.metrics),
                e.seq,
                e.pinned,
                e.milestone,
                e.verified,
                e.durable,
            )
        )
    made.bad = list(index.bad)
    _written, why = read_index(path)
    if why:
        made.notes.append(f"{INDEX} is {why}; this was read from the checkpoints themselves")
    who = owner(path)
    if who:
        made.notes.append(f"written by {describe(who)}, unless it has ended")

    def check(row: Row, level: str) -> Verdict:
        try:
            return verify_files(row.path, read_record(row.path), level)
        except (wrong.Damaged, wrong.UnknownFormat) as error:
            return Verdict(False, "none", error.why)

    return made, check


def _gone(found: Listing, row: Row) -> bool:
    return not found.run and not os.path.exists(row.path)


def _refuted(row: Row) -> bool:
    return row.verified is not None and not row.verified.get("ok")


# ---- a run ----


def _of_run(home: Home, word: str, what: str) -> tuple[Listing, Check]:
    from outlive.runs.place import open_place

    record = home.run_of(word)
    place = open_place(home, home.box_of(record.box))
    try:
        answer = place.call("run_manifest", {"run": record.run}, timeout_s=300.0)
    finally:
        place.close()
    declared = str(answer["spec"]["artifacts"]["checkpoints"])
    made = Listing(what, f"{place.name}:{posixpath.join(answer['work'], declared)}", run=record.run, format="")
    if not declared:
        made.notes.append("this run declares no checkpoints: [artifacts] checkpoints = DIR in outlive.toml")
    copied = {copy["sha256"]: copy for copy in answer["copies"]}
    for c in sorted(answer["checkpoints"], key=_order):
        copies = [copied.get(f["sha256"]) for f in c["files"] if not f.get("link")]
        made.rows.append(
            Row(
                posixpath.basename(c["path"]),
                f"{place.name}:{posixpath.join(answer['work'], c['path'])}",
                "",
                c.get("step"),
                int(c["bytes"]),
                len(c["files"]),
                float(c.get("mtime_ns", 0)) / 1e9,
                {k: float(v) for k, v in (c.get("metric") or {}).items() if isinstance(v, int | float) and k != "step"},
                verified={"level": c["level"], "ok": True, "why": "", "time": c.get("w", 0.0)},
                durable=copies[0] if copies and all(copies) else None,
            )
        )
    made.bad = [
        wrong.Bad(posixpath.basename(b["path"]), f"{place.name}:{b['path']}", b["why"])
        for b in answer.get("bad_checkpoints", [])
    ]
    files = {posixpath.basename(c["path"]): c["files"] for c in answer["checkpoints"]}

    def check(row: Row, level: str) -> Verdict:
        from outlive.runs.result import listing as look

        wanted = {f["path"]: f["sha256"] for f in files[row.name] if not f.get("link")}
        again = open_place(home, home.box_of(record.box))
        try:
            there, moved = look(again, answer["work"], paths=list(wanted))
        finally:
            again.close()
        found = {e.path: e.sha256 for e in there}
        read = sum(e.bytes for e in there)
        for path, sha256 in wanted.items():
            if path in moved:
                return Verdict(None, "none", f"{path} changed while it was read", (), read)
            if path not in found:
                return Verdict(False, "none", f"{path} is missing", (), read)
            if found[path] != sha256:
                return Verdict(False, "none", f"{path} does not have the digest it was proved with", (), read)
        return Verdict(True, str((row.verified or {}).get("level", "bytes")), "", (), read)

    return made, check


def _order(checkpoint: dict[str, Any]) -> tuple[float, float]:
    step = checkpoint.get("step")
    return (float(step) if step is not None else -1.0, float(checkpoint.get("mtime_ns", 0)))


def ages(found: Listing, now_s: float | None = None) -> list[float]:
    """Return the age of each row in seconds, by this machine's clock."""
    now = time.time() if now_s is None else now_s
    return [max(0.0, now - row.wall_s) for row in found.rows]
