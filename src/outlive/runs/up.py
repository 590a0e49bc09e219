"""``up``: reach a box, know it, remember it. On a known box it re-reaches and says what changed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

from outlive import errors
from outlive.ledger import Box, new_name
from outlive.platforms.load import all_ids, user_dir
from outlive.platforms.load import load as load_platform
from outlive.platforms.model import Platform, holds
from outlive.platforms.recognise import holding, recognise, wanted
from outlive.probes.interpreters import is_shim
from outlive.runs.home import Home
from outlive.runs.place import Place, open_place
from outlive.transport import aliases
from outlive.transport.address import Address, parse
from outlive.transport.agent import Agent, Refused
from outlive.transport.base import Exec
from outlive.transport.open import open_exec
from outlive.transport.ssh import SshExec
from outlive.wire.names import DIR

MIN_PYTHON = (3, 8)
OLD_ADDRESS_S = 15.0
"""How long a known box is waited for at its old address, when it answers at a new one."""


@dataclass(frozen=True)
class Contact:
    """What a POSIX shell could tell: readings for ``recognise``, and interpreters with versions."""

    readings: dict[str, Any]
    pythons: list[tuple[str, str]]
    home: str
    user: str
    hostname: str
    system: str


@dataclass(frozen=True)
class UpResult:
    """The box as it was found. ``changes`` compares with what was known before; empty on first contact."""

    place: Place
    new: bool
    platform_why: str
    audit: dict[str, Any]
    changes: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    skew_s: float | None = None
    pythons: list[tuple[str, str]] = field(default_factory=list)


def read_words(words: list[str], home: Home) -> tuple[str, Box | None, Address | None]:
    """Return (platform id or "", known box or None, address or None) of what was typed after ``up``.

    ``up PLATFORM [ADDRESS]`` or ``up ADDRESS`` or ``up BOX``. A pasted ssh line may come as several words.
    """
    boxes = {name: box for name, box in home.state().boxes.items() if not box.forgotten}
    if not words:
        raise errors.UsageError(
            "up needs an address, a box or a platform",
            next=[["outlive", "up", "root@HOST:PORT"], ["outlive", "up", "local:"], ["outlive", "platforms", "ls"]],
        )
    platform = ""
    if words[0] in boxes and len(words) == 1:
        return "", boxes[words[0]], None
    rest = words
    if words[0] in all_ids(overrides=user_dir()) and not aliases.alias_exists(words[0], home.ssh_config):
        platform, rest = words[0], words[1:]
        if not rest and platform == "local":
            rest = ["local:"]
        if not rest:
            raise errors.UsageError(
                f"{platform} needs an address: rent the box as below and paste its ssh line",
                why=[step.said() for step in load_platform(platform, overrides=user_dir()).launch.steps],
                safe="Nothing was rented.",
                next=[["outlive", "up", platform, "ssh -p PORT root@HOST"], ["outlive", "platforms", "show", platform]],
            )
    if len(rest) > 1 and words[0] == "ssh":
        platform, rest = "", words  # a whole line pasted without quotes, not the platform of that name
    address = parse(shlex.join(rest) if len(rest) > 1 else rest[0])
    if address.kind == "alias":
        aliases.check(address, home.ssh_config)
    return platform, None, address


def up(
    home: Home,
    words: list[str],
    *,
    name: str = "",
    root: str = "",
    python: str = "",
    at: str = "",
    price: tuple[float, str] | None = None,
    durable: str = "",
    budget_s: float = 25.0,
) -> UpResult:
    """Reach, audit and remember a box. Rents nothing; changes nothing on it but our own directory.

    Raises PlaceError, UsageError; on a known box also when another machine answers at its address.
    """
    asked_platform, known, address = read_words(words, home)
    if at:
        if known is None:
            raise errors.UsageError("--at re-points a known box; name it first", next=[["outlive", "ps"]])
        address = parse(at)
    if known is not None and address is None:
        address = parse(known.address)
    assert address is not None
    if address.kind == "local":
        address = parse(f"local:{root or address.root or default_local_root(home)}")
        root = address.root
    exec_ = open_exec(
        address,
        state_dir=home.dir,
        identity=known.box_id or None if known is not None and not at else None,
        accept_new=known is None or bool(at),
        config_path=home.ssh_config,
    )
    mark = f"{known.root}/{DIR}/box-id" if known is not None and known.box_id and root in ("", known.root) else ""
    try:
        contact = first_contact(exec_, address, mark)
    except errors.LoginRefused as error:
        if isinstance(exec_, SshExec) and not error.login_lost:
            # placed nowhere by us: a person pastes it into the console, or leaves it
            error.why.append(f"or paste this key of ours into the console's form: {exec_.offer_key().public_line}")
        raise
    if known is not None and mark:  # asked before anything of ours is written there
        _same_box(known, contact.readings["file"].get(mark, ""), address)
    platform, why = which_platform(asked_platform or (known.platform if known else ""), address, contact)
    root = root or (known.root if known else "") or root_of(platform, contact)
    words_python = python or (str(known.facts.get("python_asked") or "") if known else "")
    if address.kind == "local" and not words_python:
        # the user's own shell decides here, as it would without us: an active venv comes first on PATH
        words_python = shutil.which("python3") or sys.executable
    agent = Agent(exec_, root, choose_python(words_python, platform, contact, exec_))
    hello = _hello(agent)
    if is_shim(agent.python) and str(hello["executable"]).startswith("/"):
        agent = replace(agent, python=str(hello["executable"]))  # each call would start a shell that chooses it again
    if known is not None:
        _same_box(known, hello["box_id"], address)
    state = home.state()
    if known is None:  # the same machine under another address is the same box
        same = [b for b in state.boxes.values() if b.box_id == hello["box_id"] and not b.forgotten]
        known = same[0] if same else None
        if known is not None and (known.address, known.root) != (str(address), root):
            _no_copy(home, known, hello, address, root)
    box_name = known.name if known is not None else new_name(state, address.alias, platform.id, name)
    if isinstance(exec_, SshExec):
        exec_.settle(hello["box_id"])
    tiers = tier_paths(platform, root, contact)
    audit = agent.call(
        "audit",
        {"roots": list(dict.fromkeys([root, *tiers.values()])), "budget_s": budget_s, "hints": [agent.python]},
        timeout_s=budget_s + 30,
    )
    facts = box_facts(platform, root, contact, audit, hello, agent.python, python, tiers, durable)
    recorded = agent.call("record_box", {"box": box_json(platform, root, audit, facts)})
    facts["up_wall_s"] = recorded["up_wall_s"]
    changes = differences(known, facts, str(address)) if known is not None else []
    home.ledger.append(
        "box",
        name=box_name,
        box_id=hello["box_id"],
        platform=platform.id,
        address=str(address),
        root=root,
        state="ready",
        state_why="a fresh exchange answered",
        **facts,
    )
    if price is not None:
        home.ledger.append("price", box=box_name, per_h=price[0], currency=price[1], source="given by the user")
    place = Place(home, home.state().boxes[box_name], agent, platform)
    skew = float(hello["wall_s"]) - _now()
    return UpResult(place, known is None, why, audit, changes, list(hello["runs"]), skew, contact.pythons)


def _now() -> float:
    from outlive.wire.clock import wall_s

    return wall_s()


def _same_box(known: Box, box_id: str, address: Address) -> None:
    """Raise PlaceError unless the box at the address is the known one."""
    if not known.box_id or box_id.strip() == known.box_id:
        return
    why = f"its id is {box_id[:8]}, not {known.box_id[:8]}" if box_id else "its disk has nothing of ours"
    raise errors.PlaceError(
        f"the machine at {address} is not {known.name}: {why}",
        place=known.name,
        why=[] if box_id else [f"either {known.name} came back empty, from its image, or this is another machine"],
        safe=f"Nothing was changed. {known.name} and its runs stay on the list.",
        next=[["outlive", "up", str(address), "--name", f"{known.name}-new"], ["outlive", "forget", known.name]],
    )


def _no_copy(home: Home, known: Box, hello: dict[str, Any], address: Address, root: str) -> None:
    """Raise PlaceError when the known box still answers beside this one: its disk was copied, and both may bill.

    A box that does not answer at its old address has moved, as far as anybody can know.
    """
    place = open_place(home, known)
    try:
        old = place.call("hello", timeout_s=OLD_ADDRESS_S)
    except errors.OutliveError:
        return
    finally:
        place.close()
    if old["machine"] == hello["machine"] and known.root == root:
        return
    raise errors.PlaceError(
        f"{address} is a copy of {known.name}: both answer with the id {known.box_id[:8]}",
        place=known.name,
        why=[
            f"{known.name} at {known.address} is alive; taken for one box, one of them would be forgotten",
            "its disk was copied, or both have this directory from one shared volume",
        ],
        safe=f"Nothing was changed. {known.name} stays on the list, and what runs there goes on.",
        next=[["outlive", "up", str(address), "--root", "ANOTHER_DIR"], ["outlive", "ps", known.name]],
    )


def default_local_root(home: Home) -> str:
    """Return the directory of the embedded box: under our state directory, so that nothing of the user's is near."""
    return str(home.dir / "local-box")


def _hello(agent: Agent) -> dict[str, Any]:
    try:
        agent.install()
        return agent.call("hello", timeout_s=60)
    except Refused as refused:
        raise errors.PlaceError(
            f"{agent.root} on {agent.exec.describe()} cannot be used: {refused}",
            safe="Nothing was changed.",
            next=[["outlive", "up", agent.exec.describe(), "--root", "DIR"]],
        ) from refused


def first_contact(exec_: Exec, address: Address, file: str = "") -> Contact:
    """Ask a shell on the box what is there, and what one more ``file`` says. One round trip. Raises PlaceError."""
    script = (resources.files("outlive.onbox") / "contact.sh").read_text("ascii")
    questions = wanted(overrides=user_dir())
    lines = [f"{kind} {name}" for kind in ("env", "path", "file", "dmi", "mount") for name in questions.get(kind, [])]
    lines += [f"file {file}"] if file else []
    for id_ in all_ids(overrides=user_dir()):
        facts = load_platform(id_, overrides=user_dir()).python
        lines += [f"python {path}" for path in (facts.path, *facts.candidates) if path and not path.startswith("~")]
    done = exec_.run(["sh", "-c", script, "contact"], stdin=("\n".join(lines) + "\n").encode(), timeout_s=60)
    readings: dict[str, Any] = {"env": {}, "path": [], "file": {}, "dmi": {}, "mount": {}}
    here: dict[str, str] = {}
    pythons: list[tuple[str, str]] = []
    ended = False
    for raw in done.stdout.decode("utf-8", "replace").splitlines():
        kind, _, rest = raw.partition("\t")
        key, _, value = rest.partition("\t")
        if kind == "here":
            here[key] = value
        elif kind == "path":
            readings["path"].append(key)
        elif kind == "python" and (key, value) not in pythons:
            pythons.append((key, value))
        elif kind in readings:
            readings[kind][key] = value
        ended = ended or kind == "end"
    if not ended:
        said = done.stderr.decode("utf-8", "replace").strip()[-300:] or f"status {done.returncode}"
        raise errors.BoxLacks(
            f"{exec_.describe()} has no usable POSIX shell: {said}", place=str(address), safe="Nothing was changed."
        )
    readings["hostname"] = here.get("hostname", "")
    if address.host:
        readings["address"] = address.host
    return Contact(
        readings,
        pythons,
        here.get("home") or "/",
        here.get("user", ""),
        here.get("hostname", ""),
        here.get("system", ""),
    )


def which_platform(asked: str, address: Address, contact: Contact) -> tuple[Platform, str]:
    """Return the platform's facts and why it is this one. The user's word wins over recognition."""
    if asked:
        return load_platform(asked, overrides=user_dir()), "named by you"
    if address.kind == "local":
        return load_platform("local", overrides=user_dir()), "this machine"
    found = recognise(contact.readings, overrides=user_dir())
    for id_, why in found:
        platform = load_platform(id_, overrides=user_dir())
        if platform.ssh is not None and platform.kind not in ("slurm", "kubernetes", "notebook"):
            return platform, why
    return load_platform("ssh", overrides=user_dir()), "no platform was recognised"


def _tier_path(path: str | None, probe: Any, root: str, contact: Contact) -> str:
    if path:
        return path.replace("~", contact.home, 1) if path.startswith("~") else path
    if probe is not None and probe.by == "env":
        return contact.home if probe.value == "HOME" else str(contact.readings["env"].get(probe.value, ""))
    if probe is not None and probe.by == "given" and probe.value == "root":
        return root
    return ""  # a glob or a mount that only a person can name: `up --durable PATH` does


def root_of(platform: Platform, contact: Contact) -> str:
    """Return where our directory goes: the platform's root tier if it is there, else the home directory."""
    known, _unknown = holding(platform, contact.readings)
    for tier in platform.tiers_for("root", known):
        path = _tier_path(tier.path, tier.probe, "", contact)
        if path and (path == contact.home or path in contact.readings["path"] or tier.probe is not None):
            return path
    return contact.home


def tier_paths(platform: Platform, root: str, contact: Contact) -> dict[str, str]:
    """Return tier name -> path on this box, for the tiers that are there and whose path is known.

    A tier under a condition that is not known to hold is left out: it might be another one at the same path, and
    what survives would be believed of the wrong one.
    """
    known, _unknown = holding(platform, contact.readings)
    found = {}
    for tier in platform.tiers:
        if not holds(tier.conditions, known):
            continue
        path = _tier_path(tier.path, tier.probe, root, contact)
        if path:
            found[tier.name] = path
    return found


def choose_python(asked: str, platform: Platform, contact: Contact, exec_: Exec) -> str:
    """Return an interpreter for our program and the work: the asked one, the platform's, else the first new enough."""
    versions = dict(contact.pythons)
    if asked:
        done = exec_.run([asked, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], timeout_s=30)
        if done.returncode:
            raise errors.BoxLacks(
                f"{asked} does not work as an interpreter on {exec_.describe()}: "
                + (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no answer"])[-1],
                safe="Nothing was changed.",
                why=[f"found: {path} {version}" for path, version in contact.pythons],
            )
        return asked
    for path in (platform.python.path, *platform.python.candidates):
        if path in versions and _new_enough(versions[path]):
            return path
    for path, version in contact.pythons:
        if _new_enough(version):
            return path
    raise errors.BoxLacks(
        f"no Python {MIN_PYTHON[0]}.{MIN_PYTHON[1]} or newer was found on {exec_.describe()}",
        safe="Nothing was changed.",
        why=[f"found: {path} {version}" for path, version in contact.pythons] or ["found: none"],
        next=[["outlive", "up", exec_.describe(), "--python", "/path/to/python3"]],
    )


def _new_enough(version: str) -> bool:
    match = re.match(r"(\d+)\.(\d+)", version)
    return bool(match) and (int(match[1]), int(match[2])) >= MIN_PYTHON  # type: ignore[index]


def value(audit: dict[str, Any], part: str) -> Any:
    """Return a part of an audit, None when it is unknown."""
    return (audit.get(part) or {}).get("value")


def box_facts(
    platform: Platform,
    root: str,
    contact: Contact,
    audit: dict[str, Any],
    hello: dict[str, Any],
    python: str,
    asked: str,
    tiers: dict[str, str],
    durable: str,
) -> dict[str, Any]:
    """Return what the ledger remembers of a box besides its identity."""
    disks = {path: value(audit, f"disk:{path}") for path in {root, *tiers.values()}}
    data = next((tiers[t.name] for t in platform.tiers_for("data") if t.name in tiers), root)
    found = durable
    if not found:
        for tier in platform.tiers_for("durable"):
            path = tiers.get(tier.name, "")
            if path and path != root and (disks.get(path) or {}).get("exists") and platform.id != "local":
                found = path
                break
    gpu = value(audit, "gpu") or {}
    cpu = value(audit, "cpu") or {}
    group = value(audit, "cgroup") or {}
    return {
        "python": python,
        "python_asked": asked,
        "hostname": contact.hostname,
        "user": contact.user,
        "home": contact.home,
        "tiers": tiers,
        "data": data,
        "durable": found,
        "machine": hello["machine"],
        "gpu": [d.get("name") for d in gpu.get("devices", [])],
        "gpu_memory_bytes": [d.get("memory_total_bytes") for d in gpu.get("devices", [])],
        "gpu_state": gpu.get("state", "unknown"),
        "driver": gpu.get("driver"),
        "cuda": gpu.get("cuda"),
        "cores": cpu.get("value"),
        "memory_limit_bytes": group.get("memory_limit_bytes"),
        "disks": {
            p: {
                k: d.get(k)
                for k in (
                    "free_bytes",
                    "total_bytes",
                    "free_inodes",
                    "total_inodes",
                    "fs_type",
                    "network",
                    "commit_mode",
                )
            }
            for p, d in disks.items()
            if d
        },
        "tools": sorted(name for name, tool in (value(audit, "tools") or {}).items() if tool.get("path")),
        "torch": {
            k: (value(audit, "torch") or {}).get(k) for k in ("installed", "version", "cuda_available", "why_no_cuda")
        },
    }


def box_json(platform: Platform, root: str, audit: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """Return what the box itself remembers: from it every attempt's environment is made."""
    environment = value(audit, "environment") or {}
    cores = facts["cores"]
    cap = max(1, int(cores)) if isinstance(cores, int | float) else 0
    places = {"data": facts["data"], "durable": facts["durable"] or "", "vcpu": str(cap or os.cpu_count() or 1)}
    defaults = {}
    for key, text in platform.env_defaults.items():
        if "{durable}" in text and not places["durable"]:
            continue
        for name, put in places.items():
            text = text.replace("{" + name + "}", put)
        defaults[key] = text
    return {
        "environment": dict(environment.get("kept") or {}),
        "defaults": defaults,
        "thread_cap": cap,
        "python": facts["python"],
        "platform": platform.id,
        "grace_s": platform.spot.grace_s,
    }


def differences(known: Box, facts: dict[str, Any], address: str) -> list[str]:
    """Return one line for each thing that is not as it was at the last `up`."""
    lines = []
    if known.address != address:
        lines.append(f"address: {known.address} -> {address}")
    for key in ("hostname", "python", "gpu", "driver", "cores", "memory_limit_bytes", "durable", "data"):
        old, new = known.facts.get(key), facts.get(key)
        if old != new:
            lines.append(f"{key}: {old} -> {new}")
    if known.facts.get("machine") and known.facts["machine"] != facts["machine"]:
        lines.append("the machine was restarted, or the container is another one")
    return lines
