"""A watched run: the picture that grows with each look, as a frame for a terminal, as lines, as data."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from pathlib import Path
from typing import Any

from outlive.diagnose.points import point_from_wire
from outlive.runs.watch import Seen
from outlive.views import amounts, run_view
from outlive.views.printable import cut, last_state_of, one_line, printable, width

Span = tuple[str, str]
"""Text and its role: "", title, good, bad, warn, dim, accent."""
Row = list[Span]

WORDS = {
    "leave": "Ctrl-C leaves; the run goes on",
    "looking": "looking at {run} on {box} ...",
    "asked": "asked {ago}",
    "no answer": "no answer from {box}: {why}. This says nothing about the run; trying again",
    "login lost": "{box} answers and refuses our key; an older connection still works: pull now",
    "nothing new": "nothing new; newest log line {log}, newest checkpoint: {checkpoint}",
    "silent": "it has printed nothing yet",
    "log": "log",
    "eta": "about {span} left",
    "woke": "it was brought back to life",
}

EVENTS = {
    "created": "created",
    "attempt": "attempt {attempt} of {stage} starts",
    "attempt_ended": "attempt {attempt} ended: {sentence}",
    "state": "{state}: {why}",
    "first_line": "first line: {text}",
    "stage_done": "{stage} is done",
    "stage_failed": "{stage} failed",
    "checkpoint": "checkpoint {path} {step}({size}), proved: {level}",
    "checkpoint_bad": "checkpoint {path} fails its check: {why}",
    "checkpoint_gone": "checkpoint {path} was removed by the work",
    "pruned": "older checkpoints pruned: {n}",
    "copy": "copied {path} to {place}",
    "copy_failed": "copy of {path} fails: {why}",
    "alarm": "ALARM {alarm}: {sentence}",
    "alarm cleared": "alarm {alarm} is over",
    "stop_asked": "asked to stop: {why}",
    "resumed": "asked to go on",
    "fenced": "fenced: the run goes on elsewhere",
    "log_gap": "the log outgrew its limit; its middle was given back",
    "trouble": "our own program had trouble with {part}: {why}",
    "answered": "answered {asked}: {text}",
    "lease": "lease: {max_s} s in all",
    "roster": "the roster is frozen: {n} files",
    "ended": "ended: {state}",
    "then": "then {do}: {said}",
}
"""Journal records as sentences; kinds that are not here are not told."""

SERIES = 4000
LOG_LINES = 200


class Picture:
    """Everything known of one run from the looks so far. Feed with ``add``; draw whenever you like."""

    def __init__(self, run: str, box: str) -> None:
        self.run, self.box = run, box
        self.status: dict[str, Any] | None = None
        self.status_at: float | None = None
        self.trouble = ""
        self.login_lost = False
        self.losses: deque[float] = deque(maxlen=SERIES)
        self.steps: deque[tuple[float, int]] = deque(maxlen=400)
        self.point: dict[str, Any] = {}
        self.sample: dict[str, Any] = {}
        self.log: deque[str] = deque(maxlen=LOG_LINES)
        self._cut = b""
        self.events: list[str] = []

    def add(self, seen: Seen, at: float | None = None) -> None:
        """Take one look."""
        at = time.time() if at is None else at
        self.login_lost = seen.login_lost
        self.trouble = seen.trouble if not seen.reachable else ""
        if seen.status is not None:
            self.status, self.status_at = seen.status, at
        self.add_metrics(seen.metrics)
        self.add_log(seen.log)
        self.events = [text for text in (event_text(record) for record in seen.journal) if text]
        if seen.woke:
            self.events.append(WORDS["woke"])

    def add_metrics(self, lines: list[dict[str, Any]]) -> None:
        """Take points of ``metrics.jsonl``."""
        for line in lines:
            point = point_from_wire(line)
            if point.get("local"):  # steps of an epoch that starts again from zero are not the run's
                point = {k: v for k, v in point.items() if k not in ("step", "total")}
            self.point.update({k: v for k, v in point.items() if v is not None})
            if isinstance(point.get("loss"), int | float):
                self.losses.append(float(point["loss"]))
            if isinstance(point.get("step"), int) and isinstance(point.get("b"), int | float):
                if self.steps and point["step"] < self.steps[-1][1]:
                    self.steps.clear()  # another attempt began at an earlier step
                self.steps.append((float(point["b"]), point["step"]))

    def add_log(self, data: bytes) -> None:
        """Take the next bytes of the log."""
        parts = (self._cut + data).split(b"\n")
        self._cut = parts.pop()[-16384:]
        for part in parts:
            line = last_state_of(part.decode("utf-8", "replace"))
            if line.strip():
                self.log.append(printable(line))

    def read_mirror(self, directory: Path) -> None:
        """Take what earlier looks left on this machine: the course of the loss, the end of the log, the last sample."""
        self.add_metrics(_json_lines(_tail(directory / "metrics", 1 << 20)))
        self.add_log(_tail(directory / "log", 32768).partition(b"\n")[2])
        self.read_sample(directory)

    def read_sample(self, directory: Path) -> None:
        """Take the newest resource sample of the mirror."""
        lines = _json_lines(_tail(directory / "samples", 16384))
        if lines:
            self.sample = lines[-1]

    # ---- what follows from it ----

    @property
    def state(self) -> str:
        return str(self.status["state"]) if self.status is not None else "unknown"

    def left_s(self) -> float | None:
        """Return the seconds to the last step at the speed of the last minutes, None when that is not known."""
        total = self.point.get("total")
        if not total or len(self.steps) < 2:
            return None
        (b0, s0), (b1, s1) = self.steps[0], self.steps[-1]
        if s1 <= s0 or b1 <= b0:
            return None
        return max(0.0, (float(total) - s1) * (b1 - b0) / (s1 - s0))

    def log_tail(self, lines: int) -> list[str]:
        """Return the last lines of the log, with an unfinished one (a progress bar) at the end."""
        shown = list(self.log)
        unfinished = printable(last_state_of(self._cut.decode("utf-8", "replace")))
        if unfinished.strip():
            shown.append(unfinished)
        return [line.expandtabs(4) for line in shown[-lines:]] if lines > 0 else []

    def data(self, seen: Seen | None = None) -> dict[str, Any]:
        """Return one look for ``--json``: schema ``outlive/watch/1``. What the work printed is under ``untrusted``."""
        status = self.status or {"run": self.run, "state": "unknown", "ended": False}
        current = seen.reachable if seen is not None else True
        data = run_view.run_data(status, box=self.box, seen_w=self.status_at, current=current)
        data.pop("first_line", None)
        if seen is not None:
            data["untrusted"]["log"] = seen.log[-16384:].decode("utf-8", "replace")
        metrics = {k: v for k, v in self.point.items() if k not in ("b", "w", "at", "source")}
        return {
            "schema": "outlive/watch/1",
            **data,
            "reachable": current,
            "trouble": self.trouble or None,
            "login_lost": self.login_lost,
            "changed": list(seen.changed) if seen is not None else [],
            "events": self.events,
            "metrics": _finite(metrics),
            "left_s": self.left_s(),
            "sample": self.sample or None,
        }

    # ---- lines, where nothing can be redrawn ----

    def line(self, seen: Seen, clock: str = "") -> list[str]:
        """Return the lines for one look: events first, then where the run stands. Never empty."""
        clock = clock or time.strftime("%H:%M:%S")
        if not seen.reachable:
            word = WORDS["login lost"] if seen.login_lost else WORDS["no answer"]
            return [f"{clock} " + word.format(box=self.box, why=one_line(seen.trouble))]
        lines = [f"{clock} {event}" for event in self.events]
        status = self.status or {}
        where = run_view.progress(status, self.point)
        if where or not lines:
            if not where or not (seen.metrics or seen.log or lines):
                log_age = amounts.ago(status.get("log_age_s")) if status.get("log_bytes") else WORDS["silent"]
                nothing = WORDS["nothing new"].format(log=log_age, checkpoint=run_view.checkpoint_text(status))
                where = f"{where}; {nothing}" if where else nothing
            lines.append(f"{clock} {run_view.state_text(status)}: {where}")
        return lines

    def once_lines(self, columns: int) -> list[str]:
        """Return one look as text, for ``watch --once``."""
        rows = self.frame(columns, 60, plain=True, footer=False, log_lines=10)
        return ["".join(text for text, _ in row).rstrip() for row in rows]

    def end_lines(self) -> list[str]:
        """Return what to say when the run has ended."""
        status = self.status or {}
        why = run_view.why_text(status)
        lines = [f"{self.run}: {run_view.state_text(status)}" + (f": {why}" if why else "")]
        lines += [line for line in run_view.detail_lines(status) if line.startswith("!")]
        if status.get("checkpoint"):
            lines.append(run_view.checkpoint_text(status))
        verb = "logs" if status.get("state") in ("failed",) else "pull"
        return [*lines, f"next: outlive {verb} {self.run}"]

    # ---- the frame ----

    def frame(
        self,
        columns: int,
        height: int,
        *,
        plain: bool = False,
        footer: bool = True,
        log_lines: int = 99,
        now_w: float | None = None,
    ) -> list[Row]:
        """Return rows of at most ``columns`` by ``height``; the log gets what is left."""
        now_w = time.time() if now_w is None else now_w
        if self.status is None:
            said = self.trouble and WORDS["no answer"].format(box=self.box, why=one_line(self.trouble))
            return [[(cut(said or WORDS["looking"].format(run=self.run, box=self.box), columns), "dim")]]
        rows = [self._title(columns), *self._progress(columns, plain), *self._numbers(columns, plain)]
        rows += (
            self._checkpoint(columns, now_w) + self._resources(columns) + self._gpus(columns) + self._attention(columns)
        )
        rows = rows[: max(3, height - 3)]
        foot = [self._footer(columns, now_w)] if footer and not self.status.get("ended") else []
        room = min(log_lines, height - len(rows) - len(foot) - 1)
        tail = self.log_tail(room)
        if tail:
            rows.append(
                [("-- log " if plain else "── log ", "dim"), (("-" if plain else "─") * max(0, columns - 7), "dim")]
            )
            rows += [[(cut(line, columns), "")] for line in tail]
        return rows + foot

    def _title(self, columns: int) -> Row:
        status = self.status or {}
        state = run_view.state_text(status)
        role = {"running": "good", "succeeded": "good", "starting": "accent", "finishing": "accent"}.get(
            str(status.get("state")), "warn"
        )
        role = "bad" if status.get("state") in ("failed", "suspect") else role
        left = f"{self.run} on {self.box}"
        attempt = status.get("attempt") or 0
        age = status.get("attempt_age_s")
        facts = [state]
        if attempt > 1:
            facts.append(run_view.WORDS["attempt"].format(n=attempt))
        if age is not None and not status.get("ended"):
            facts.append(amounts.span(age))
        right = cut(", ".join(facts), columns - 10)
        room = columns - width(right) - 2
        if width(left) > room:
            left = cut(self.run, room)
        return [(left, "title"), (" " * max(2, columns - width(left) - width(right)), ""), (right, role)]

    def _progress(self, columns: int, plain: bool) -> list[Row]:
        status = self.status or {}
        step, total = status.get("step"), self.point.get("total")
        step = self.point.get("step", step)
        if step is None:
            stage = status.get("stage")
            return [[(f"stage {stage}", "dim")]] if stage and stage != "main" else []
        if not total:
            return [[(f"step {step}", "")]]
        left_s = None if status.get("ended") else self.left_s()
        head = f"step {step}/{total} "
        tail = f" {amounts.share(step, total)}" + (
            ", " + WORDS["eta"].format(span=amounts.span(left_s)) if left_s is not None else ""
        )
        room = min(60, columns - width(head) - width(tail))
        if room < 6:
            return [[(cut(head + tail.strip(), columns), "")]]
        return [[(head, ""), (amounts.bar(step, total, room, plain=plain), "accent"), (tail, "")]]

    def _numbers(self, columns: int, plain: bool) -> list[Row]:
        p = self.point
        parts: list[tuple[str, str]] = []
        for key, label in (("val_loss", "val"), ("lr", "lr"), ("grad_norm", "grad"), ("epoch", "epoch")):
            if p.get(key) is not None:
                parts.append((f"{label} {amounts.number(p[key])}", ""))
        if p.get("tokens_per_s") is not None:
            parts.append((f"{amounts.count(round(float(p['tokens_per_s'])))} tokens/s", ""))
        rows: list[Row] = []
        if p.get("loss") is not None:
            bad = isinstance(p["loss"], float) and not math.isfinite(p["loss"])
            head = f"loss {amounts.number(p['loss'])}"
            line: Row = [(head, "bad" if bad else "")]
            room = min(40, columns - width(head) - 2)
            if len(self.losses) > 2 and room >= 8:
                line.append(("  " + amounts.sparkline(list(self.losses), room, plain=plain), "accent"))
            rows.append(line)
        for text, role in parts:
            joined = "  " + text
            if rows and sum(width(t) for t, _ in rows[-1]) + width(joined) <= columns:
                rows[-1].append((joined, role))
            else:
                rows.append([(cut(text, columns), role)])
        return rows

    def _checkpoint(self, columns: int, now_w: float) -> list[Row]:
        status = self.status or {}
        text = run_view.checkpoint_text(status, now_w)
        if status.get("checkpoints", 0) > 1:
            text += f"; {status['checkpoints']} kept"
        if status.get("copied"):
            text += "; " + run_view.WORDS["copied"].format(n=status["copied"], to=status.get("durable", ""))
        return [[(cut(text, columns), "dim" if not status.get("checkpoint") else "")]]

    def _resources(self, columns: int) -> list[Row]:
        s = self.sample
        if not s:
            return []
        parts: list[Span] = []
        used, limit = s.get("memory_used_bytes"), s.get("memory_limit_bytes")
        if used is not None:
            near = limit and used > 0.9 * limit
            of = f" of {amounts.size(limit)} {amounts.share(used, limit)}" if limit else ""
            parts.append((f"memory {amounts.size(used)}{of}", "warn" if near else "dim"))
        free, total = s.get("disk_free_bytes"), s.get("disk_total_bytes")
        if free is not None:
            low = total and free < 0.1 * total
            parts.append((f"disk {amounts.size(free)} free", "warn" if low else "dim"))
        inodes, all_inodes = s.get("disk_free_inodes"), s.get("disk_total_inodes")
        if inodes is not None and all_inodes and inodes < 0.1 * all_inodes:
            parts.append((f"inodes {inodes} left", "warn"))
        periods, throttled = s.get("cpu_periods"), s.get("cpu_throttled_periods")
        if periods and throttled and throttled > 0.1 * periods:
            parts.append((f"cpu throttled {amounts.share(throttled, periods)}", "warn"))
        return _joined(parts, columns)

    def _gpus(self, columns: int) -> list[Row]:
        gpu = self.sample.get("gpu") or {}
        if gpu.get("state") in ("sick", "unknown") and gpu.get("why"):
            return [
                [
                    (
                        cut(f"gpu {gpu['state']}: {one_line(gpu['why'])}", columns),
                        "bad" if gpu["state"] == "sick" else "dim",
                    )
                ]
            ]
        rows: list[Row] = []
        devices = gpu.get("devices") or []
        for device in devices[:4]:
            parts = [f"gpu {device.get('index')} {one_line(str(device.get('name') or ''))}".rstrip()]
            if device.get("utilisation") is not None:
                parts.append(f"{100 * device['utilisation']:.0f}%")
            if device.get("memory_used_bytes") is not None:
                parts.append(
                    f"{amounts.size(device['memory_used_bytes'])} of {amounts.size(device.get('memory_total_bytes'))}"
                )
            if device.get("temperature_c") is not None:
                parts.append(f"{device['temperature_c']:.0f} C")
            if device.get("power_w") is not None:
                parts.append(f"{device['power_w']:.0f} W")
            rows.append([(cut("  ".join(parts), columns), "dim")])
        if len(devices) > 4:
            rows.append([(f"and {len(devices) - 4} more", "dim")])
        return rows

    def _attention(self, columns: int) -> list[Row]:
        status = self.status or {}
        rows: list[Row] = [
            [(cut(line, columns), "warn")] for line in run_view.detail_lines(status) if line.startswith("!")
        ]
        needs = run_view.needs_text(status)
        if needs and not (status.get("alarms") and status.get("state") in ("stalled", "hung")):
            rows.insert(0, [(cut(needs, columns), "bad")])
        if self.trouble:
            word = WORDS["login lost"] if self.login_lost else WORDS["no answer"]
            rows.insert(0, [(cut(word.format(box=self.box, why=one_line(self.trouble)), columns), "bad")])
        return rows

    def _footer(self, columns: int, now_w: float) -> Row:
        age = None if self.status_at is None else max(0.0, now_w - self.status_at)
        left, right = WORDS["leave"], WORDS["asked"].format(ago=amounts.ago(age))
        gap = columns - width(left) - width(right)
        return [(left, "dim"), (" " * gap, ""), (right, "dim")] if gap > 1 else [(cut(left, columns), "dim")]


def event_text(record: dict[str, Any]) -> str:
    """Return a journal record as a sentence, "" for kinds that are not told."""
    kind = str(record.get("k", ""))
    if kind == "alarm" and record.get("cleared"):
        kind = "alarm cleared"
    if kind not in EVENTS:
        return ""
    fields: dict[str, Any] = {**record, **(record.get("copy") or {})}
    if kind == "checkpoint":
        fields["size"] = amounts.size(record.get("bytes"))
        fields["step"] = f"step {record['step']} " if record.get("step") is not None else ""
    if kind == "attempt_ended":
        fields["sentence"] = (record.get("outcome") or {}).get("sentence", "")
    if kind == "pruned":
        fields["n"] = len(record.get("paths") or [])
    if kind == "roster":
        fields["n"] = record.get("entries")
    if kind == "then":
        fields["said"] = "carried out from inside the box" if record.get("ok") else f"not done: {record.get('why')}"
    return one_line(EVENTS[kind].format_map(_Known(fields)))


class _Known(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return amounts.UNKNOWN


def _joined(parts: list[Span], columns: int) -> list[Row]:
    rows: list[Row] = []
    for text, role in parts:
        if rows and sum(width(t) for t, _ in rows[-1]) + width(text) + 3 <= columns:
            rows[-1] += [("   ", ""), (text, role)]
        else:
            rows.append([(cut(text, columns), role)])
    return rows


def _tail(path: Path, limit_bytes: int) -> bytes:
    try:
        with path.open("rb") as handle:
            handle.seek(0, 2)
            handle.seek(max(0, handle.tell() - limit_bytes))
            return handle.read()
    except OSError:
        return b""


def _json_lines(data: bytes) -> list[dict[str, Any]]:
    found = []
    for raw in data.splitlines():
        try:
            line = json.loads(raw)
        except ValueError:
            continue
        if isinstance(line, dict):
            found.append(line)
    return found


def _finite(metrics: dict[str, Any]) -> dict[str, Any]:
    """JSON has no word for NaN; it is written as the text "nan"."""
    return {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in metrics.items()}
