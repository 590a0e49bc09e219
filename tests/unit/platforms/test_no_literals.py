"""Facts about platforms stay in their files: no other code names a platform's path, host, variable, verb or price."""

import re
from pathlib import Path

import outlive
from outlive.platforms.load import all_ids, load

SRC = Path(outlive.__file__).parent
COMMON = {"/", "/root", "/data", "/mnt", "/tmp", "/cloud", "/storage", "/workspace", "/usr/bin/python3", "/home/user"}
COMMON |= {"/root/miniconda3/bin/python"}
"""Paths that any machine may have (the last is where conda's own installer puts itself); the others are somebody's."""


def literals() -> set[str]:
    found: set[str] = set()
    for id in all_ids():
        p = load(id)
        if p.kind in ("slurm", "kubernetes", "local"):
            continue  # schedulers of ours know their own commands and variables
        for tier in p.tiers:
            found |= {x for x in (tier.path, tier.mount) if x}
        found |= {x for x in (p.python.path, *p.python.candidates) if x}
        found |= {h.name for h in p.recognise if h.name and h.strong}
        found |= {h.match.lstrip("*") for h in p.recognise if h.match}
        found |= {v.label.zh for v in p.verbs if v.label.zh and p.launch.console_language == "zh"}
        found |= {v.name for v in p.verbs if "_" in v.name}
        if p.network.proxy is not None and p.network.proxy.path:
            found.add(p.network.proxy.path)
        if p.network.panel is not None:
            found.add(p.network.panel.logdir)
    return found - COMMON


def test_there_is_something_to_look_for():
    assert {"/root/autodl-tmp", "关机", "power_off", "RUNPOD_POD_ID", ".seetacloud.com", "/hy-tmp"} <= literals()


def test_no_code_outside_the_facts_names_a_platforms_things():
    pattern = re.compile(
        "|".join(rf"(?<![\w/.-]){re.escape(x)}(?![\w-])" for x in sorted(literals(), key=len, reverse=True))
    )
    hits = []
    for path in sorted(SRC.rglob("*")):
        if not path.is_file() or path.suffix not in (".py", ".sh", ".toml", ".txt", ".html", ".js"):
            continue
        if SRC / "platforms" in path.parents or "rules" in path.parts:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            hits += [f"{path.relative_to(SRC)}:{number}: {found}" for found in pattern.findall(line)]
    assert hits == []


def test_the_code_of_the_facts_package_names_none_either():
    pattern = re.compile("|".join(re.escape(x) for x in literals() if x.startswith("/") or not x.isascii()))
    for path in sorted((SRC / "platforms").glob("*.py")):
        assert pattern.findall(path.read_text(encoding="utf-8")) == [], path.name
