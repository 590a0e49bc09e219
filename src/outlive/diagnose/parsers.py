"""Metrics out of a log, for the formats that training programs print.

A *point* is a dict with what one line said, and nothing that it did not say:

``step`` ``total`` (ints), ``epoch`` (float), ``loss`` ``val_loss`` ``acc`` ``val_acc`` ``lr`` ``grad_norm``
``tokens_per_s`` ``mfu`` (a share of 1) ``loss_scale`` (floats, loss may be nan or inf), ``skipped`` (1: a mixed
precision scaler threw the step away), ``local`` (True: ``step`` and ``total`` count within the epoch or the bar,
not over the run) and ``source`` (nanogpt, litgpt, lightning, hf, tqdm, keras, json, kv, scaler).
"""

import json
import re
from typing import Any, Dict, List, Optional, Tuple

from .lines import LineSplitter
from .metric_names import Found, fields, named
from .points import Point as Point
from .points import point_from_wire as point_from_wire
from .points import wire_point as wire_point
from .prefixes import strip_prefixes

NEEDLES = (b"loss", b"%|", b"step", b"iter", b"epoch", b"it/s", b"overflow", b"traceback")
"""A line without any of these (in any letter case) cannot give a point."""

_TEXT_LIMIT = 4000  # metrics stand at the front of a line; what is longer is data
_HINT = re.compile(r"loss|%\||it/s|overflow|\b(?:step|iter|iteration|global_step)\b", re.IGNORECASE)
_DIGIT = re.compile(r"\d|nan|inf", re.IGNORECASE)
_ERROR_LINE = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|Warning)\b(?::|$|\()")
_CODE_LINE = re.compile(
    r"File \"|Traceback \(|\s{2,40}[\w.\[\], ]{1,80}\s=\s.*[A-Za-z(*]|\s{2,40}(?:return|raise|assert|if|for|def|self\."
    r"|print\()|[│|]\s*(?:❱\s*)?\d+\s│"
)
_DUMP = re.compile(r"\w\([A-Za-z_]\w{0,80}=|(?:^|\s)--?[A-Za-z][\w-]*[= ]|^\s*(?:\$|\+|>>>)\s")
_DUMP_WORD = re.compile(
    r"\b(?:config|args|arguments|namespace|hparams|hyperparameters|params|options|settings|kwargs|defaults)\b", re.I
)
_BAR = re.compile(
    r"(?P<desc>[^|%\r\n]{0,200}?)(?P<pct>\d{1,3})%\|[^|]{0,400}\|\s*"
    r"(?P<n>\d[\d,]*)/(?P<total>\d[\d,]*)\s*"
    r"(?:\[(?P<time>[\d:?]{1,12})<(?P<eta>[^,\]]{0,20})(?:,\s*(?P<rate>[^,\]]{0,24}))?(?:,\s*(?P<post>(?:[^\[\]]"
    r"|\[[^\[\]]*\]){0,2000}))?\])?"
)
_RICH = re.compile(r"[━╸╺]{3,}[\s━╸╺]*(?P<n>\d+)/(?P<total>\d+)\s")
_KERAS = re.compile(r"\s*(?P<n>\d+)/(?P<total>\d+)\s+(?:\[[=>.]+\]|━+)?\s.*(?:/step\b|ETA:)")
_RATE_IS_STEPS = re.compile(r"\?|.*(?:it|step|steps|batch|batches|iter|ba)/s$|.*s/(?:it|step|batch|iter|ba)$")
_SIDE_BAR = re.compile(
    r"download|load|token|\bmap\b|map \(|filter|cach|sav|writ|extract|fetch|predict|generat|valid|\bval\b|eval|test"
    r"|sanity|shard|quantiz|prepro|pars|read|copy|upload|pack|compil|collect|process|examples|files|warm|group|sampl"
    r"|epochs?:?\s*$",
    re.IGNORECASE,
)
_EPOCH_IN = re.compile(r"\bepochs?[\s:\[#(]{0,3}(\d+)", re.IGNORECASE)
_EPOCH_HEAD = re.compile(r"\s*Epoch:?\s+(\d+)\s*/\s*\d+\s*$", re.IGNORECASE)
_FRACTION = re.compile(r"(?<![\w./:-])(\d{1,12})\s{0,3}/\s{0,5}(\d{1,12})(?![\w./:-]*\d|\w)")
_NANOGPT = re.compile(r"\s*(?:iter \d+: loss [\d.naif-]+, time [\d.]+ ?m?s|step \d+: train loss [\d.naif-]+, val loss)")
_LITGPT = re.compile(r"\s*(?:Epoch \d+ \| )?iter \d+ step \d+ ?[|:]")
_OVERFLOW = re.compile(r"overflow.{0,40}skipping step|skipping step.{0,60}overflow", re.IGNORECASE)
_NEW_SCALE = re.compile(r"\bto\s+([\d.]+(?:e[+-]?\d+)?)", re.IGNORECASE)
_OLD_SCALE = re.compile(r"loss scale:?\s*([\d.]+(?:e[+-]?\d+)?)", re.IGNORECASE)
_QUOTED = re.compile(
    r"['\"]([\w ./-]{1,80})['\"]\s*:\s*(?:['\"]([^'\"]{0,64})['\"]"
    r"|(?:tensor|np\.\w+|numpy\.\w+)?\(?\s*([-+]?(?:[\d.]+(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)))",
    re.IGNORECASE,
)
_TELLS = ("loss", "val_loss")
_WITH_STEP = ("lr", "grad_norm", "tokens_per_s", "mfu", "acc", "val_acc", "loss_scale")
_MESSAGE_KEYS = ("message", "msg", "log", "event", "text")


class MetricParser:
    """Reads one attempt's log as it grows; any chunks of the same bytes give the same points.

    ``start`` is the offset of the first byte that will be fed. Never raises on any bytes.
    """

    def __init__(self, start: int = 0) -> None:
        self._splitter = LineSplitter(start=start, max_bytes=16 * 1024, needles=NEEDLES)
        self._in_traceback_until = -1
        self._epoch: Optional[float] = None  # from a heading line of its own (Keras)
        self._outer: Optional[Tuple[int, int]] = None  # unlabelled bar with the largest total: n, total
        self._last_bar: Optional[Point] = None

    @property
    def offset(self) -> int:
        """Offset after the last byte that was fed."""
        return self._splitter.offset

    def feed(self, data: bytes) -> List[Point]:
        """Take the next bytes of the log; return the points of the lines that are complete now."""
        return self._points(self._splitter.feed(data))

    def flush(self) -> List[Point]:
        """The log has ended: return the points of its unfinished last line."""
        return self._points(self._splitter.flush())

    def _points(self, lines: List[Any]) -> List[Point]:
        points: List[Point] = []
        for line in lines:
            if line.repeat:  # was read as the bar's last state
                continue
            for point in self._line(line.text, line.start):
                if line.bar or "local" in point or point.get("source") == "tqdm":
                    if point == self._last_bar:  # redrawn without news
                        continue
                    self._last_bar = point
                points.append(point)
        return points

    def _line(self, text: str, start: int) -> List[Point]:
        if len(text) > _TEXT_LIMIT:
            text = text[:_TEXT_LIMIT]
        text = strip_prefixes(text)
        if "Traceback (most recent" in text:
            self._in_traceback_until = start + 64 * 1024
            text = text[: text.index("Traceback (most recent")]
        elif start < self._in_traceback_until:
            if text[:1] in (" ", "\t"):
                return []
            self._in_traceback_until = -1
        if not _HINT.search(text):
            head = _EPOCH_HEAD.match(text)
            if head:
                self._epoch = float(head.group(1))
            elif "poch" not in text and "POCH" not in text:
                return []
        if not _DIGIT.search(text):
            return []
        points: List[Point] = []
        place: Point = {}  # the bar's position, for a record printed on the same line
        for _ in range(8):
            bar = _BAR.search(text) if "%|" in text else None
            if bar is None:
                break
            if bar.start() and text[: bar.start()].strip():  # something stood before the bar's own label
                points.extend(self._record(text[: bar.start()]))
            found = self._bar(bar)
            if found:
                points.append(found)
                place = {k: found[k] for k in ("step", "total", "local", "epoch") if k in found}
            text = text[bar.end() :]
        rest = self._record(text) if text.strip() else []
        for point in rest:
            if place and "step" not in point and "local" not in place:
                for key, value in place.items():
                    point.setdefault(key, value)
        return points + rest

    def _bar(self, bar: "re.Match[str]") -> Optional[Point]:
        desc = (bar.group("desc") or "").strip(" :\t")
        rate = (bar.group("rate") or "?").strip()
        post = bar.group("post") or ""
        n, total = int(bar.group("n").replace(",", "")), int(bar.group("total").replace(",", ""))
        values = fields(post) if post else {}
        for key in ("step", "total"):
            values.pop(key, None)
        if not _RATE_IS_STEPS.match(rate) or (_SIDE_BAR.search(desc) and "rain" not in desc):
            return None
        point: Point = {"step": n, "total": total}
        epoch = _EPOCH_IN.search(desc)
        if epoch:
            point["epoch"] = float(epoch.group(1))
            point["local"] = True
        elif not desc:
            outer = self._outer
            if outer and total < outer[1] and outer[0] < outer[1]:
                return None  # an evaluation bar inside the training bar
            self._outer = (n, total)
        if "loss" in desc:
            values.update({k: v for k, v in fields(desc).items() if k in _TELLS})
        point.update((k, v) for k, v in values.items() if k != "epoch" or "epoch" not in point)
        point["source"] = "lightning" if "v_num" in post else "tqdm"
        return point

    def _record(self, text: str) -> List[Point]:
        if _ERROR_LINE.match(text.lstrip()) or _CODE_LINE.match(text):
            return []
        if "verflow" in text.lower() and _OVERFLOW.search(text):
            return [_skip(text)]
        brace = text.find("{")
        if brace >= 0 and ("'" in text or '"' in text) and ":" in text:
            point = _dictionary(text, brace)
            if point is not None:
                return [point] if point else []
            if brace == 0:
                return []
        if _DUMP.search(text):
            return []
        point = self._text(text)
        return [point] if point else []

    def _text(self, text: str) -> Point:
        point = fields(text)
        bar = _RICH.search(text)
        keras = None if bar else _KERAS.match(text)
        if bar or keras:
            match = bar or keras
            point["step"], point["total"] = int(match.group("n")), int(match.group("total"))  # type: ignore[union-attr]
            point["local"] = True
            if "epoch" not in point and self._epoch is not None:
                point["epoch"] = self._epoch
            if keras and not any(k in point for k in _TELLS):
                return {}
            if bar and not re.search(r"(?:it|step|batch)/s|s/it", text):
                return {}
            point["source"] = "keras" if keras else ("lightning" if "v_num" in text else "rich")
            return point
        tells = any(k in point for k in _TELLS)
        if tells and "step" not in point:
            fraction = _loose_fraction(text)
            if fraction:
                point["step"], point["total"] = fraction
        if "step" in point and "epoch" in point and "total" in point and point["epoch"] == int(point["epoch"]):
            if "global" not in text:
                point["local"] = True
        if not _enough(point, text):
            return {}
        if _NANOGPT.match(text):
            point["source"] = "nanogpt"
        elif _LITGPT.match(text):
            point["source"] = "litgpt"
        else:
            point["source"] = "kv"
        return point


def _enough(point: Found, text: str) -> bool:
    """Whether named numbers amount to a metric line rather than to prose or settings."""
    if any(k in point for k in _TELLS):
        return True
    if "step" not in point:
        return False
    if any(k in point for k in _WITH_STEP):
        return not _DUMP_WORD.search(text)
    return "total" in point and bool(re.search(r"\b(?:iteration|iter|global_step)\b", text, re.IGNORECASE))


def _loose_fraction(text: str) -> Optional[Tuple[int, int]]:
    """``[310/7510]``, ``3821 / 11460``: a step of a total without a name. An epoch of epochs is not one."""
    for match in _FRACTION.finditer(text):
        before = text[max(0, match.start() - 12) : match.start()].lower()
        if re.search(r"ep(?:och)?s?[\s:=\[(#]*$", before):
            continue
        step, total = int(match.group(1)), int(match.group(2))
        if 0 <= step <= total and total > 1:
            return step, total
    return None


def _skip(text: str) -> Point:
    point: Point = {"skipped": 1}
    match = _NEW_SCALE.search(text, text.lower().find("reducing")) or _OLD_SCALE.search(text)
    if match and "reducing hysteresis" not in text.lower():
        try:
            point["loss_scale"] = float(match.group(1))
        except ValueError:
            pass
    point["source"] = "scaler"
    return point


def _dictionary(text: str, brace: int) -> Optional[Point]:
    """A line that is a dict or JSON object: its point, {} when it holds no metric, None when it is no such line."""
    head, body = text[:brace], text[brace:].rstrip()
    if len(head) > 60 or _DUMP_WORD.search(head):
        return {} if "'loss'" not in body and '"loss"' not in body else None
    if body.startswith('{"') and body.endswith("}"):
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):
            data = None
        if isinstance(data, dict):
            return _json_point(data)
    pairs = [
        (m.group(1), m.group(2) if m.group(2) is not None else float_or_text(m.group(3)))
        for m in _QUOTED.finditer(body)
    ]
    if not pairs:
        return None
    keys = {k for k, _ in pairs}
    if "train_runtime" in keys:  # the summary of a whole training: averages, not a point in time
        return {}
    return _dict_point(pairs, "hf")


def float_or_text(text: str) -> Any:
    """Return the number a text stands for, or the text."""
    try:
        return float(text)
    except ValueError:
        return text


def _json_point(data: Dict[str, Any]) -> Point:
    pairs: List[Tuple[str, Any]] = []
    for key, value in list(data.items())[:200]:
        if isinstance(value, dict):
            pairs.extend((key + "/" + str(k), v) for k, v in list(value.items())[:100])
        else:
            pairs.append((key, value))
    if "train_runtime" in data:
        return {}
    point = _dict_point(pairs, "json")
    if not point:
        for key in _MESSAGE_KEYS:
            inner = data.get(key)
            if isinstance(inner, str) and _HINT.search(inner[:_TEXT_LIMIT]):
                found = MetricParser()._line(inner[:_TEXT_LIMIT], 0)
                return found[-1] if found else {}
    return point


def _dict_point(pairs: List[Tuple[str, Any]], source: str) -> Point:
    point = named(pairs)
    if not any(k in point for k in _TELLS) and not (
        "step" in point and any(k in point for k in _WITH_STEP) and len(pairs) <= 40
    ):
        return {}
    point["source"] = source
    return point
