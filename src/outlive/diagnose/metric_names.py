"""Which words of a log name a metric, and which digits are its value. Pure text, no state.

``fields`` reads ``key=value``, ``key: value`` and ``key value`` runs; ``named`` does the same for the
keys of a dictionary. Both give canonical names, and both leave out what merely looks like a metric:
limits, best-so-far values, schedules, command lines and dumps of arguments.
"""

import functools
import math
import re
from typing import Any, Dict, Iterable, List, Optional, Tuple

NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3}){1,8}(?!\d)(?:\.\d{1,24})?"
    r"|\d{1,24}(?:\.\d{0,24})?(?:[eE][-+]?\d{1,4})?"  # bounded: an unbounded one is tried at every length
    r"|\.\d{1,24}(?:[eE][-+]?\d{1,4})?"
    r"|nan\b|inf(?:inity)?\b)"
)
"""One number as programs print it: thousands separators, exponents, nan and inf."""

_UNIT = r"(?P<unit>%|[kKMG](?![A-Za-z]))?"
# A number that goes on as a version, date, time, address or identifier is none of ours.
_END = r"(?![\w]|\.\d|-\d|:\d|\.\w|°)"
_WORD = r"[A-Za-z_][A-Za-z0-9_/@-]{0,47}(?:\.[A-Za-z_][A-Za-z0-9_/@-]{0,30}){0,2}"
_FIELD = re.compile(
    r"(?<![\w./\-'\"])(?P<key>" + _WORD + r"(?:[ \t]" + _WORD + r"){0,2}?)"
    r"(?P<sep>\s{0,3}[=:]|\s)\s{0,12}(?:\(|\[|tensor\(|(?:np|numpy|torch)\.\w{1,12}\()?\s{0,6}"
    r"(?P<num>" + NUMBER + r")" + _UNIT + r"(?:\s{0,3}/\s{0,3}(?P<total>\d[\d,]*))?" + _END,
    re.IGNORECASE,
)
_RATE = re.compile(
    r"(?<![\w.])(?P<num>\d[\d,]{0,20}(?:\.\d{0,12})?)\s?(?P<unit>[kKMG]?)\s?(?:tokens?|tok|toks)\s?/\s?s(?:ec(?:ond)?)?\b",
    re.IGNORECASE,
)
_SPLIT = re.compile(r"[\s_./@-]+|(?<=[a-z])(?=[A-Z])")
_SCALE = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}

_VAL = frozenset("val valid validation eval evaluation test dev heldout".split())
_NOT_A_LOSS = frozenset(
    "scale scaler weight weights fn func function type coef coefficient ratio lambda best lowest min max minimum "
    "maximum target threshold delta smoothing improved patience previous prev old initial tolerance id idx limit "
    "improvement decrease increase count num no".split()
)
_PLAIN_LOSS = frozenset(
    "loss train training total lm ce nll mean avg average running step epoch batch iter reduced global model overall "
    "current smoothed final mlm objective metrics trainer minibatch mb interval log value the".split()
)
_NOT_A_STEP = frozenset(
    "warmup max maximum total per eval save log logging every accumulation num of size decay freq frequency interval "
    "time ms start end last first next steps resume resuming from until previous best test val validation".split()
)
_STEP = frozenset("step iter iteration it update updates".split())
_RATE_KEYS = frozenset(
    (
        "tokens/s tok/s toks/s tokens/sec tokens/second tok/sec token/s tokens_per_s tokens_per_sec tokens_per_second "
        "tok_per_s tok_per_sec tps wps tgs train_tokens_per_second tokens_per_second_per_gpu"
    ).split()
)

Found = Dict[str, Any]
"""Canonical name -> value; ``step`` may bring ``total`` along."""


def number(text: str, unit: Optional[str] = None) -> Optional[float]:
    """Return the value of a printed number (``1,234`` ``4%`` with unit ``%``), or None when it is none."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    if unit == "%":
        return value / 100.0
    return value * _SCALE.get(unit or "", 1.0)


@functools.lru_cache(maxsize=4096)  # a program prints the same few keys a million times
def canonical(key: str) -> Tuple[str, int]:
    """Return (canonical name, rank) for a key as printed, or ("", 0); a lower rank is the better source."""
    low = key.strip().lower()
    if low.rsplit("/", 2)[-1] in _RATE_KEYS or low in _RATE_KEYS or "/".join(low.split("/")[-2:]) in _RATE_KEYS:
        return "tokens_per_s", 0
    words = [w.lower() for w in _SPLIT.split(key.strip()) if w]
    if not words:
        return "", 0
    for count in range(len(words), 0, -1):  # "on epoch" is an epoch: leading words may be prose
        name = _name_of(words[-count:])
        if name[0]:
            return name
        if words[-count] in _NOT_A_LOSS or words[-count] in _NOT_A_STEP:
            break
    return "", 0


def _name_of(words: List[str]) -> Tuple[str, int]:
    last = words[-1]
    rest = set(words)
    if any(w == "loss" or (w.endswith("loss") and len(w) <= 12) for w in words):
        if rest & _NOT_A_LOSS:
            if "loss" in rest and rest & {"scale", "scaler"}:
                return "loss_scale", 0
            return "", 0
        if rest & _VAL:
            return "val_loss", len(rest - _VAL - _PLAIN_LOSS) * 3 + (2 if "test" in rest else 0)
        extra = [w for w in rest - _PLAIN_LOSS if w not in ("trainloss", "avgloss", "totalloss")]
        if not extra:
            return "loss", 0 if words == ["loss"] else 1
        return "loss", 5
    if last == "lr" or words[0] == "lr" or words[-2:] == ["learning", "rate"]:
        return (
            ("", 0)
            if rest & {"initial", "base", "max", "min", "peak", "warmup", "decay", "final"}
            else ("lr", len(words) - 1)
        )
    if last in ("gnorm", "grad", "gradnorm") or ("norm" in rest and rest & {"grad", "gradient", "total"}):
        return ("grad_norm", 0) if last in ("norm", "gnorm", "gradnorm") or "norm" in rest else ("", 0)
    if last == "mfu":
        return "mfu", 0
    if last in ("acc", "accuracy"):
        return ("val_acc" if rest & _VAL else "acc"), len(words)
    if last in ("epoch", "epochs", "ep") and not rest & (_NOT_A_STEP - {"log"}):
        return ("epoch", 0) if last != "epochs" else ("", 0)
    if last in _STEP and not rest & _NOT_A_STEP:
        return "step", {"step": 1}.get(last, 2) - (1 if "global" in rest else 0)
    if last == "steps" and rest & {"max", "total"}:
        return "total", 0
    if words == ["batch"]:
        return "batch", 0
    return "", 0


class Fields:
    """Collects canonical values, keeping for each name the one from the best key."""

    def __init__(self) -> None:
        self.found: Found = {}
        self._ranks: Dict[str, int] = {}

    def add(self, key: str, value: Optional[float], total: Optional[float] = None, percent: bool = False) -> None:
        """Offer one key with its value; what is no metric, or no sane value of one, is dropped."""
        if value is None:
            return
        name, rank = canonical(key)
        if not name or rank >= self._ranks.get(name, 1000):
            return
        if name in ("step", "batch", "total"):
            if percent or not math.isfinite(value) or value < 0 or value != int(value) or value > 1e13:
                return
            if name == "batch":
                if total is None or "step" in self.found:  # a lone "batch 128" is a size
                    return
                name = "step"
            self.found[name] = int(value)
            if name == "step" and total is not None and total > 0:
                self.found["total"] = int(total)
        elif name == "epoch":
            if not math.isfinite(value) or value < 0 or value > 1e9:
                return
            self.found[name] = value
        elif name in ("lr", "tokens_per_s", "loss_scale"):
            if not math.isfinite(value) or value < 0 or percent:
                return
            self.found[name] = value
        elif name == "mfu":
            value = value if percent or value <= 1.5 else value / 100.0
            if not 0 <= value <= 1.5:  # programs print -100% for "not measured yet"
                return
            self.found[name] = value
        else:
            self.found[name] = value
        self._ranks[name] = rank

    def result(self) -> Found:
        """What was collected. A loss under a strange name counts only beside a step or an epoch."""
        if self._ranks.get("loss", 0) >= 5 and not ("step" in self.found or "epoch" in self.found):
            del self.found["loss"]
        return self.found


def fields(text: str) -> Found:
    """Read every named number of a line of text; see the module for what is left out."""
    got = Fields()
    pair: Optional[str] = None  # "loss train: 3.1, val: 3.2" names the second by the first
    for match in _FIELD.finditer(text):
        key = match.group("key")
        unit = match.group("unit")
        low = key.lower()
        if low == "loss train":
            pair = "loss"
        elif low == "val" and pair:
            key = "val loss"
        total = match.group("total")
        got.add(key, number(match.group("num"), unit), number(total) if total else None, unit == "%")
    if "tokens_per_s" not in got.found:
        rate = _RATE.search(text)
        if rate:
            value = number(rate.group("num"), rate.group("unit"))
            if value is not None:
                got.found["tokens_per_s"] = value
    return got.result()


_NUMBER_ONLY = re.compile(r"\s*(" + NUMBER + r")\s*" + _UNIT + r"\s*(?:/\s*(\d+)\s*)?$", re.IGNORECASE)


def named(pairs: Iterable[Tuple[str, Any]]) -> Found:
    """Read the pairs of a dictionary; values may be numbers or text that is one number."""
    got = Fields()
    for key, value in pairs:
        if isinstance(value, bool) or value is None:
            continue
        if isinstance(value, (int, float)):
            try:
                got.add(key, float(value))
            except OverflowError:
                continue
        elif isinstance(value, str) and len(value) <= 64:
            match = _NUMBER_ONLY.match(value)
            if match:
                total = match.group(3)
                got.add(
                    key.split("/max_steps")[0],
                    number(match.group(1), match.group("unit")),
                    number(total) if total else None,
                    match.group("unit") == "%",
                )
    return got.result()
