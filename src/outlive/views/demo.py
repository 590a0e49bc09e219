"""The demo as it is told: a live panel at a terminal, plain lines elsewhere. Both draw the same moments."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from outlive.runs.demo import STEPS, Moment, Told
from outlive.views.amounts import number
from outlive.views.printable import cut, pad

if TYPE_CHECKING:
    from rich.text import Text

TITLE_COLUMNS = 22
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
COLOURS = {"undisturbed": "cyan", "killed": "yellow"}
CURVE_EVERY_S = 4.0


class Plain:
    """Writes a line when a step begins to say something or is done, and the losses now and then."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._last_curve_s = 0.0
        self._newest: dict[str, tuple[int, float]] = {}

    def show(self, moment: Moment) -> None:
        step = next((s for s in STEPS if s.id == moment.id), None)
        place = f"{STEPS.index(step) + 1:2}/{len(STEPS)} {step.title}" if step else ""
        if moment.kind == "begin" and step is not None:
            self._line(moment.at_s, f"{place}: {step.promise}")
        elif moment.kind == "say":
            self._line(moment.at_s, f"      {moment.text}")
        elif moment.kind == "done":
            self._line(moment.at_s, f"   ok {moment.text}")
            self._line(moment.at_s, f"      ({moment.facts['detail']})")
        elif moment.kind == "failed":
            self._line(moment.at_s, f" FAIL {moment.text}")
        elif moment.kind == "point":
            self._newest[moment.facts["series"]] = (moment.facts["step"], moment.facts["loss"])
            if moment.at_s - self._last_curve_s >= CURVE_EVERY_S and moment.id != "adopt":
                self._last_curve_s = moment.at_s
                said = [f"{name}: step {step}, loss {loss:.3f}" for name, (step, loss) in sorted(self._newest.items())]
                self._line(moment.at_s, "      " + " · ".join(said))

    def _line(self, at_s: float, text: str) -> None:
        self._write(f"{at_s:5.1f}s {text}")


class Panel:
    """What is on the screen: the steps with their results, and both loss curves over time. ``rich`` draws it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._began_wall_s = time.time()
        self.states: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.details: dict[str, str] = {}
        self.curves: dict[str, list[tuple[float, int, float]]] = {name: [] for name in COLOURS}
        """Series -> (seconds, step, loss), in order of time."""
        self.marks: list[tuple[float, str, int]] = []
        self.over_s: float | None = None
        self._seen: set[tuple[str, float, int]] = set()

    def show(self, moment: Moment) -> None:
        """Take a moment. May be called from any thread while the screen is drawn."""
        if moment.kind == "begin":
            self.states[moment.id] = "now"
        elif moment.kind in ("say", "done", "failed"):
            self.texts[moment.id] = moment.text
            self.details[moment.id] = moment.facts.get("detail", "")
            if moment.kind != "say":
                self.states[moment.id] = moment.kind
        elif moment.kind == "mark":
            at_s = moment.facts["wall_s"] - self._began_wall_s
            self.marks.append((at_s, moment.text, moment.facts["step"]))
        elif moment.kind == "point":
            point = (moment.facts["series"], moment.facts["wall_s"], moment.facts["step"])
            if point not in self._seen:  # after the take-over the box tells its curves again
                self._seen.add(point)
                at_s = moment.facts["wall_s"] - self._began_wall_s
                self.curves[point[0]].append((at_s, moment.facts["step"], moment.facts["loss"]))

    def end(self) -> None:
        """Stop the clock on the screen."""
        self.over_s = self._clock() - self._began

    # -- drawing ------------------------------------------------------------------------------------

    def __rich_console__(self, console: Any, options: Any) -> Any:
        yield from self.lines(options.max_width, console.height)

    def lines(self, columns: int, rows: int) -> list[Text]:
        """Return the screen for a terminal of that size, at least one row less than it has."""
        from rich.text import Text

        tall = rows >= 2 * len(STEPS) + 14
        took = self.over_s if self.over_s is not None else self._clock() - self._began
        clock = f"{took:.1f} s"
        title = "outlive demo"
        subtitle = cut("  a training that outlives its process, client and box", columns - len(title) - len(clock) - 1)
        head = Text(title, style="bold")
        head.append(pad(subtitle, columns - len(title) - len(clock) - 1), style="dim")
        head.append(clock, style="bold")
        found = [head, Text("─" * columns, style="dim")]
        for index, step in enumerate(STEPS, 1):
            found += self._step(index, step, columns, tall)
        room = rows - len(found) - 3
        if room >= 4:
            found.append(Text(""))
            found += self._plot(columns, min(room, 14))
        return found

    def _step(self, index: int, step: Any, columns: int, tall: bool) -> list[Text]:
        from rich.text import Text

        state, text = self.states.get(step.id, ""), self.texts.get(step.id, "")
        spin = SPINNER[int(self._clock() * 10) % len(SPINNER)]
        icon, style = {"done": ("✔", "green"), "now": (spin, "cyan"), "failed": ("✘", "bold red")}.get(
            state, ("·", "dim")
        )
        line = Text(f" {icon} ", style=style)
        line.append(pad(f"{index:2} {step.title}", TITLE_COLUMNS + 3), style="bold" if state else "dim")
        room = columns - TITLE_COLUMNS - 7
        if tall:
            line.append(
                cut(text or step.promise, room), style="" if state == "done" else "dim" if not state else "italic"
            )
            return [line, Text(" " * (TITLE_COLUMNS + 6) + cut(self.details.get(step.id, ""), room), style="dim")]
        line.append(
            cut(text or (step.promise if state == "now" else ""), room), style="italic" if state == "now" else ""
        )
        return [line]

    def _plot(self, columns: int, rows: int) -> list[Text]:
        from rich.text import Text

        rows -= 2  # axis and legend
        every = [point for curve in self.curves.values() for point in curve]
        left = 6
        if not every:
            return [Text(" " * left + "the loss curves appear here", style="dim")]
        losses = sorted(p[2] for p in every)
        low, high = losses[0], losses[int(0.95 * (len(losses) - 1))]  # the first steep steps would flatten the rest
        end_s = max(10.0, *(p[0] for p in every), *(m[0] for m in self.marks))
        begin_s = min(p[0] for p in every)
        canvas = Canvas(columns - left - 1, rows, (begin_s, end_s), (low, high))
        for name, curve in self.curves.items():
            for run in pieces(spread(list(curve))):
                canvas.line(run, COLOURS[name])
        for at_s, text, step in self.marks:
            canvas.mark(
                at_s,
                f"✗ {text}" if text.startswith("kill") else f"↻ from step {step}",
                "bold red" if text.startswith("kill") else "bold green",
            )
        found = []
        for row, line in enumerate(canvas.texts()):
            label = number(high) if row == 0 else number(low) if row == rows - 1 else "loss" if row == rows // 2 else ""
            found.append(Text(f"{label:>{left - 1}} ", style="dim") + line)
        found.append(
            Text(
                " " * left + f"{begin_s:.0f} s" + f"{end_s:.0f} s".rjust(columns - left - 1 - len(f"{begin_s:.0f} s")),
                style="dim",
            )
        )
        legend = Text(" " * left)
        for name, words in (("undisturbed", "undisturbed"), ("killed", "killed, resumed")):
            last = self.curves[name][-1:]
            legend.append("━━ ", style=COLOURS[name])
            legend.append(words + (f" {last[0][2]:.4f} (step {last[0][1]})   " if last else "   "), style="dim")
        legend.truncate(columns)
        found.append(legend)
        return found


def spread(curve: list[tuple[float, int, float]]) -> list[tuple[float, int, float]]:
    """Return the curve with points that were read in one go laid out over the time since the reading before."""
    found: list[tuple[float, int, float]] = []
    start = 0
    while start < len(curve):
        end = start
        while end < len(curve) and curve[end][0] == curve[start][0]:
            end += 1
        now = curve[start][0]
        before = curve[start - 1][0] if start else now - 0.5
        before = max(before, now - 0.5)  # a longer pause was a pause
        for index in range(start, end):
            found.append((before + (now - before) * (index - start + 1) / (end - start), *curve[index][1:]))
        start = end
    return found


def pieces(curve: list[tuple[float, int, float]]) -> list[list[tuple[float, float]]]:
    """Return the curve as (seconds, loss) runs, cut where the step falls back: that is a resume."""
    found: list[list[tuple[float, float]]] = []
    last = math.inf
    for at_s, step, loss in curve:
        if step <= last or not found:
            found.append([])
        found[-1].append((at_s, loss))
        last = step
    return found


class Canvas:
    """Lines in braille dots, two by four to a cell."""

    DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))

    def __init__(self, columns: int, rows: int, x: tuple[float, float], y: tuple[float, float]) -> None:
        self.columns, self.rows, self.x, self.y = columns, rows, x, y
        self.bits: dict[tuple[int, int], int] = {}
        self.styles: dict[tuple[int, int], str] = {}
        self.words: list[tuple[int, str, str]] = []

    def _dot(self, x: float, y: float) -> tuple[int, int]:
        across = (x - self.x[0]) / ((self.x[1] - self.x[0]) or 1.0)
        down = (self.y[1] - min(y, self.y[1])) / ((self.y[1] - self.y[0]) or 1.0)
        return round(across * (2 * self.columns - 1)), round(down * (4 * self.rows - 1))

    def line(self, points: list[tuple[float, float]], style: str) -> None:
        """Connect the points."""
        dots = [self._dot(*p) for p in points]
        for (x0, y0), (x1, y1) in zip(dots, dots[1:] or dots, strict=False):
            steps = max(abs(x1 - x0), abs(y1 - y0), 1)
            for i in range(steps + 1):
                self._set(round(x0 + (x1 - x0) * i / steps), round(y0 + (y1 - y0) * i / steps), style)

    def _set(self, x: int, y: int, style: str) -> None:
        if 0 <= x < 2 * self.columns and 0 <= y < 4 * self.rows:
            cell = (x // 2, y // 4)
            self.bits[cell] = self.bits.get(cell, 0) | self.DOTS[y % 4][x % 2]
            self.styles[cell] = style

    def mark(self, x: float, text: str, style: str) -> None:
        """Draw an upright dotted line at ``x`` with a word beside it."""
        column = self._dot(x, self.y[0])[0] // 2
        for row in range(self.rows):
            if (column, row) not in self.bits:
                self.bits[(column, row)], self.styles[(column, row)] = -1, style
        fits = column + 1 + len(text) <= self.columns
        self.words.append((column + 1 if fits else max(0, column - len(text)), text, style))

    def texts(self) -> list[Text]:
        """Return one line of text per row."""
        from rich.text import Text

        found = []
        for row in range(self.rows):
            line = Text()
            written = 0
            for column in range(self.columns):
                if column < written:
                    continue
                word = next((w for index, w in enumerate(self.words) if index == row and w[0] == column), None)
                if word is not None:
                    line.append(word[1], style=word[2])
                    written = column + len(word[1])
                    continue
                bits = self.bits.get((column, row), 0)
                line.append(
                    "┊" if bits < 0 else chr(0x2800 + bits) if bits else " ", style=self.styles.get((column, row), "")
                )
            found.append(line)
        return found


def summary(told: Told, kept: str) -> str:
    """Return the last line."""
    return f"outlive demo: {len(told.checks)} of {len(STEPS)} checks passed in {told.took_s:.0f} s; {kept}"


def data(told: Told, result: str | None) -> dict[str, Any]:
    """Return the demo as one JSON-ready object."""
    return {
        "schema": "outlive/demo/1",
        "took_s": round(told.took_s, 1),
        "steps": [{"id": s.id, "promise": s.promise, "found": told.checks[s.id]} for s in STEPS],
        "facts": told.facts,
        "result": result,
    }
