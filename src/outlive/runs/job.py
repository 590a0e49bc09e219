"""What the user wants, portable: ``outlive.toml`` or flags, checked before anything is touched.

Every error names file, line and key and suggests the nearest valid key.
"""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from outlive import errors
from outlive.wire.names import JOB_NAME

FILE = "outlive.toml"

KEYS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "job": {"name": str, "run": str, "smoke": str, "pty": bool},
    "stage": {"name": str, "run": str, "produces": list, "always": bool},
    "setup": {"run": str, "inputs": list},
    "resources": {"gpu": str, "disk": str, "inodes": int, "image": str},
    "artifacts": {"checkpoints": str, "roster": list, "keep": dict, "signal": str},
    "durable": {"to": str},
    "retry": {"max": int, "wait_s": (int, float)},
    "env": {},
    "secrets": {},
    "budget": {"max_hours": (int, float), "max_cost": str},
    "notify": {"urls": list},
    "watch": {"stall": str, "hung": str, "grace": str, "sample": str, "scan": str},
    "push": {"crlf": str, "data": list},
}
"""Tables and keys of ``outlive.toml``. An empty table takes any key."""

KEEP_KEYS = {"latest": int, "best": int, "every": str}
_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_TIMES = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Stage:
    """One command of a job. ``run`` is a string for a shell, or words that reach the program exactly."""

    name: str
    run: str | tuple[str, ...]
    produces: tuple[str, ...] = ()
    always: bool = False


@dataclass(frozen=True)
class Job:
    """A portable job; nothing in it names a platform."""

    name: str
    stages: tuple[Stage, ...]
    project: Path
    """Directory whose snapshot is pushed."""
    smoke: str = ""
    pty: bool = False
    setup_run: str = ""
    setup_inputs: tuple[str, ...] = ()
    gpu: str = ""
    disk_bytes: int = 0
    disk_inodes: int = 0
    image: str = ""
    checkpoints: str = ""
    roster: tuple[str, ...] = ()
    keep: dict[str, Any] | None = None
    signal: str = ""
    durable_to: str = "auto"
    retry_max: int = 3
    retry_wait_s: float | None = None
    env: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    """Name of a variable of the work -> name of the client's variable that holds it."""
    secrets_keep: str = "memory"
    max_s: float | None = None
    max_cost: tuple[float, str] | None = None
    notify: tuple[str, ...] = ()
    """``env:NAME`` words; a notice address is a secret."""
    limits: dict[str, float] = field(default_factory=dict)
    crlf: str = "normalise"
    data: tuple[str, ...] = ()
    push: bool = True
    then: str = "keep"
    """What follows the end of the run: ``keep``, ``pause`` or ``down``."""

    def with_command(self, words: tuple[str, ...]) -> Job:
        """Return the job with one stage that runs exactly these words."""
        return replace(self, stages=(Stage("main", words, self.stages[-1].produces if self.stages else ()),))


def job_name(text: str) -> str:
    """Return a valid job name made from any text: small letters, digits, ``.``, ``_``, ``-``."""
    name = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:40]
    return name if JOB_NAME.match(name or "") else "job"


def seconds(text: str) -> float:
    """Return the seconds of ``90``, ``90s``, ``15m``, ``1.5h``, ``2d``. Raises ValueError."""
    match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([a-z]*)\s*", text)
    if not match or (match[2] or "s") not in _TIMES:
        raise ValueError(f"not a time: {text!r}; write 90s, 15m, 1h or 2d")
    return float(match[1]) * _TIMES[match[2] or "s"]


def size_bytes(text: str) -> int:
    """Return the bytes of ``500``, ``100GB``, ``64 MiB``. Raises ValueError."""
    match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([a-z]*)\s*", text.lower())
    if not match or match[2] not in _BYTES:
        raise ValueError(f"not a size: {text!r}; write 500MB, 100GB or 64GiB")
    return int(float(match[1]) * _BYTES[match[2]])


def money(text: str) -> tuple[float, str]:
    """Return (20.0, "USD") of ``20 USD``. Raises ValueError."""
    match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([A-Z]{3})\s*", text)
    if not match:
        raise ValueError(f"not an amount: {text!r}; write for example 20 USD")
    return float(match[1]), match[2]


def load(directory: Path) -> Job | None:
    """Return the job of ``outlive.toml`` in ``directory`` or a parent of it, None when there is none.

    Raises BadConfig.
    """
    for folder in (directory, *directory.parents):
        path = folder / FILE
        if path.is_file():
            return read(path)
    return None


def read(path: Path) -> Job:
    """Return the job of one file. Raises BadConfig with line, key and suggestion."""
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8")
        data = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise errors.BadConfig(f"{path} is not UTF-8 text (byte {error.start})", file=str(path), safe=_SAFE) from error
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"at line (\d+)", str(error))
        raise errors.BadConfig(
            f"not valid TOML: {error}", file=str(path), line=int(match[1]) if match else None, safe=_SAFE
        ) from error
    return _Reader(path, text).job(data)


_SAFE = "Nothing was pushed or started."


class _Reader:
    """Turns parsed TOML into a Job, with the position of every complaint."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.lines = path, text.splitlines()

    def bad(self, what: str, table: str, key: str = "", suggestion: str = "") -> errors.BadConfig:
        return errors.BadConfig(
            what,
            file=str(self.path),
            line=self.line_of(table, key),
            key=f"{table}.{key}" if key else table,
            suggestion=suggestion,
            safe=_SAFE,
        )

    def line_of(self, table: str, key: str) -> int | None:
        """Return the 1-based line where a table or a key in it stands, as well as text can tell."""
        here = ""
        for number, line in enumerate(self.lines, 1):
            header = re.match(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?", line)
            if header:
                here = header[1].split(".")[0].strip("\"' ")
                if here == table and not key:
                    return number
            elif here == table and key and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[.=]", line):
                return number
        return None

    def job(self, data: dict[str, Any]) -> Job:
        for table, content in data.items():
            self._table(table, content)
        job = data.get("job", {})
        secrets = dict(data.get("secrets", {}))
        keep = secrets.pop("keep", "memory")
        if keep not in ("memory", "box"):
            raise self.bad(f'secrets.keep is "memory" or "box", not {keep!r}', "secrets", "keep")
        for name, word in secrets.items():
            if not isinstance(word, str) or not word.startswith("env:") or not word[4:]:
                raise self.bad(f'{name} must be "env:NAME": a secret is never written into a file', "secrets", name)
        urls = data.get("notify", {}).get("urls", [])
        for word in urls:
            if not isinstance(word, str) or not word.startswith("env:"):
                raise self.bad(
                    'an address holds a token: write "env:NAME" and set NAME in your shell', "notify", "urls"
                )
        durable = data.get("durable", {}).get("to", "auto")
        if not (durable in ("auto", "here", "none") or durable.startswith(("/", "rclone:", "{durable}", "{data}"))):
            raise self.bad(
                f'durable.to is "auto", "here", "none", an absolute path or "rclone:remote:path", not {durable!r}',
                "durable",
                "to",
            )
        resources, budget = data.get("resources", {}), data.get("budget", {})
        artifacts, setup = data.get("artifacts", {}), data.get("setup", {})
        name = job.get("name") or job_name(self.path.parent.resolve().name)
        if not JOB_NAME.match(name):
            raise self.bad(
                f"job name {name!r}: small letters, digits, '.', '_' and '-', at most 40", "job", "name", job_name(name)
            )
        return Job(
            name=name,
            stages=self._stages(data),
            project=self.path.parent.resolve(),
            smoke=job.get("smoke", ""),
            pty=job.get("pty", False),
            setup_run=setup.get("run", ""),
            setup_inputs=tuple(self._paths(setup.get("inputs", []), "setup", "inputs")),
            gpu=resources.get("gpu", ""),
            disk_bytes=self._parsed(size_bytes, resources, "resources", "disk") or 0,
            disk_inodes=resources.get("inodes", 0),
            image=resources.get("image", ""),
            checkpoints="".join(self._paths([artifacts["checkpoints"]], "artifacts", "checkpoints"))
            if artifacts.get("checkpoints")
            else "",
            roster=tuple(self._paths(artifacts.get("roster", []), "artifacts", "roster")),
            keep=self._keep(artifacts.get("keep")),
            signal=artifacts.get("signal", ""),
            durable_to=durable,
            retry_max=data.get("retry", {}).get("max", 3),
            retry_wait_s=data.get("retry", {}).get("wait_s"),
            env={k: str(v) for k, v in data.get("env", {}).items()},
            secrets={k: v[4:] for k, v in secrets.items()},
            secrets_keep=keep,
            max_s=float(budget["max_hours"]) * 3600 if "max_hours" in budget else None,
            max_cost=self._parsed(money, budget, "budget", "max_cost"),
            notify=tuple(urls),
            limits={
                f"{key}_s": value
                for key in KEYS["watch"]
                if (value := self._parsed(seconds, data.get("watch", {}), "watch", key)) is not None
            },
            crlf=data.get("push", {}).get("crlf", "normalise"),
            data=tuple(data.get("push", {}).get("data", [])),
        )

    def _table(self, table: str, content: Any) -> None:
        if table not in KEYS:
            raise self.bad(f"there is no table [{table}]", table, suggestion=errors.nearest(table, KEYS))
        rows = content if table == "stage" else [content]
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise self.bad(
                f"[{table}] must be a table" if table != "stage" else "write [[stage]] with two brackets", table
            )
        for row in rows:
            for key, value in row.items():
                known = KEYS[table]
                if not known:
                    if not isinstance(value, str | int | float | bool):
                        raise self.bad("must be a text or a number", table, key)
                    continue
                if key not in known:
                    raise self.bad(f"[{table}] has no key {key!r}", table, key, errors.nearest(key, known))
                want = known[key]
                if not isinstance(value, want) or (isinstance(value, bool) and want is not bool):
                    names = want if isinstance(want, tuple) else (want,)
                    raise self.bad(f"must be {' or '.join(_NAMES[n] for n in names)}, not {value!r}", table, key)
                if isinstance(value, int | float) and not (math.isfinite(value) and value >= 0):
                    raise self.bad(f"must be a number from 0 on, not {value!r}", table, key)
                if isinstance(value, str) and "\0" in value:
                    raise self.bad("cannot contain a zero byte", table, key)

    def _stages(self, data: dict[str, Any]) -> tuple[Stage, ...]:
        run, rows = data.get("job", {}).get("run"), data.get("stage", [])
        if run and rows:
            raise self.bad("write job.run or [[stage]] blocks, not both", "job", "run")
        if run:
            return (Stage("main", run),)
        stages = []
        for number, row in enumerate(rows, 1):
            if not row.get("run"):
                raise self.bad(f"stage {number} has no `run`", "stage")
            produces = tuple(self._paths(row.get("produces", []), "stage", "produces"))
            stages.append(Stage(row.get("name", f"stage{number}"), row["run"], produces, row.get("always", False)))
        return tuple(stages)

    def _paths(self, values: list[Any], table: str, key: str) -> list[str]:
        from outlive.artifacts.manifest import relative_path

        paths = []
        for value in values:
            try:
                paths.append(relative_path(value))
            except (ValueError, TypeError, AttributeError) as error:
                raise self.bad(f"{value!r}: {error}", table, key) from error
        return paths

    def _keep(self, keep: dict[str, Any] | None) -> dict[str, Any] | None:
        if not keep:
            return None
        for key, value in keep.items():
            fits = key in KEEP_KEYS and isinstance(value, KEEP_KEYS[key]) and not isinstance(value, bool)
            if not fits or (isinstance(value, int) and value < 0):
                raise self.bad(
                    f"keep has `latest` and `best` (numbers) and `every` (a time), not {key} = {value!r}",
                    "artifacts",
                    "keep",
                )
        rule: dict[str, Any] = {"latest": keep.get("latest", 1), "best": keep.get("best", 0)}
        if "every" in keep:
            rule["every_s"] = self._parsed(seconds, keep, "artifacts", "every")
        return rule

    def _parsed(self, parse: Any, row: dict[str, Any], table: str, key: str) -> Any:
        if key not in row:
            return None
        try:
            return parse(row[key])
        except ValueError as error:
            raise self.bad(str(error), table, key) from error


_NAMES = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}
