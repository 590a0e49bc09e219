"""The spec of a run: what is executed, byte for byte the same in every attempt.

A spec is plain JSON. ``digest`` is over its canonical form, so two clients that mean the same thing
agree, and a retry can be compared to the first start.
"""

import hashlib
import json
import re
from typing import Any, Dict, List, Optional

from outlive.wire.names import JOB_NAME

SCHEMA = "outlive/spec/1"
SMOKE = "smoke"
"""Name of the short first stage: it is meant to end long before the last step."""
SETUP_DIGEST = re.compile(r"^[A-Za-z0-9_-]{1,128}$")
"""It becomes a file name on the box."""

DEFAULTS: Dict[str, Any] = {
    "schema": SCHEMA,
    "job": "",
    "stages": [],
    "setup": None,
    "snapshot": None,
    "python": "",
    "env": {},
    "secrets": {"keep": "memory", "names": []},
    "artifacts": {"roster": [], "checkpoints": "", "keep": None, "signal": ""},
    "durable": {"to": "none"},
    "retry": {"max": 3},
    "lease": {"max_s": None, "reserve_s": 120.0},
    "notify": {"urls": 0},
    "resources": {"disk_bytes": 0, "disk_inodes": 0, "gpu": ""},
    "limits": {
        "grace_s": 30.0,
        "stall_s": None,
        "hung_s": 300.0,
        "sample_s": 15.0,
        "scan_s": 5.0,
        "log_cap_bytes": 1 << 30,
        "retry_wait_s": 5.0,
        "reserve_bytes": 1 << 20,
        "final_copy_s": 900.0,
    },
    "pty": False,
    "then": {"do": "keep", "argv": []},
    "lineage": None,
}
"""Every key of a spec with its default.

``stages``: list of ``{"name", "run": list of words or one string, "produces": globs, "always": bool}``.
``limits.final_copy_s``: how long the end waits for a safe place that refuses, before it ends and says so.
``then``: what follows the end: ``keep`` (nothing), ``pause`` (``argv`` is the platform's reversible command, run on
the box), ``down`` (a client does it, with a standing approval).
``lineage``: ``{"run", "box", "attempt": last attempt of the old run, "step"}`` for a run made by ``--from``.
"""


def complete(partial: Dict[str, Any]) -> Dict[str, Any]:
    """Return the spec with every default filled in, one level deep. Raises ValueError on unknown keys."""
    spec = json.loads(json.dumps(DEFAULTS))
    for key, value in partial.items():
        if key not in DEFAULTS:
            raise ValueError("a spec has no key %r" % key)
        if isinstance(DEFAULTS[key], dict) and isinstance(value, dict):
            if key != "env":
                for sub in value:
                    if sub not in DEFAULTS[key]:
                        raise ValueError("a spec's %s has no key %r" % (key, sub))
            spec[key].update(value)
        else:
            spec[key] = value
    check(spec)
    return dict(spec)


def check(spec: Dict[str, Any]) -> None:
    """Raise ValueError with a sentence when the spec cannot be executed."""
    if spec.get("schema") != SCHEMA:
        raise ValueError("not a spec of version %s" % SCHEMA)
    if not JOB_NAME.match(spec["job"]):
        raise ValueError("job name %r: use small letters, digits, '.', '_' and '-', at most 40" % spec["job"])
    if not spec["stages"]:
        raise ValueError("nothing to run")
    then = spec["then"]
    if then["do"] not in ("keep", "pause", "down") or (then["do"] == "pause" and not then["argv"]):
        raise ValueError("then: keep, pause (with its command) or down")
    names: List[str] = []
    for stage in spec["stages"]:
        run = stage.get("run")
        if not run or not (isinstance(run, str) or (isinstance(run, list) and all(isinstance(w, str) for w in run))):
            raise ValueError("stage %r: `run` must be a command" % stage.get("name"))
        if any("\0" in w for w in ([run] if isinstance(run, str) else run)):
            raise ValueError("stage %r: a command cannot contain a zero byte" % stage.get("name"))
        if not isinstance(stage.get("name"), str) or not stage["name"]:
            raise ValueError("every stage needs a name")
        names.append(stage["name"])
    if len(set(names)) != len(names):
        raise ValueError("two stages have one name: %s" % ", ".join(names))
    if spec.get("setup"):
        if not spec["setup"].get("run") or not SETUP_DIGEST.match(str(spec["setup"].get("digest", ""))):
            raise ValueError("`setup` needs a command and a digest of its inputs")
        if "setup" in names:
            raise ValueError("a stage cannot be called `setup` when there is a [setup]")
    if spec.get("pty"):
        raise ValueError(
            "`pty = true` cannot be done yet: the work writes straight into its log, without a terminal; leave it out"
        )
    if spec["secrets"].get("keep") not in ("memory", "box"):
        raise ValueError('secrets.keep is "memory" or "box", not %r' % spec["secrets"].get("keep"))
    for name, value in spec["env"].items():
        if not name or "=" in name or "\0" in name or "\0" in str(value):
            raise ValueError("env: %r cannot be a variable of the environment" % name)


def canonical(spec: Dict[str, Any]) -> bytes:
    return json.dumps(spec, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def digest(spec: Dict[str, Any]) -> str:
    """Return the spec's sha256; equal for equal meaning, whatever the order of keys."""
    return hashlib.sha256(canonical(spec)).hexdigest()


def differences(old: Dict[str, Any], new: Dict[str, Any], prefix: str = "") -> List[str]:
    """Return one line per value that differs: ``env.LR: 1 -> 2``."""
    lines: List[str] = []
    for key in sorted(set(old) | set(new)):
        a: Optional[Any] = old.get(key)
        b: Optional[Any] = new.get(key)
        if a == b:
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            lines.extend(differences(a, b, prefix + key + "."))
        else:
            lines.append("%s%s: %s -> %s" % (prefix, key, json.dumps(a), json.dumps(b)))
    return lines
