"""Links in the documentation lead somewhere, and the first page names the commands that work."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)|!\[[^\]\n]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")])


def anchors(page: Path) -> set[str]:
    found = set()
    for heading in re.findall(r"^#+\s+(.+?)\s*$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
        found.add(plain.replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page):
    broken = []
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text("utf-8")))
    for found in LINK.finditer(text):
        target = found.group(1) or found.group(2)
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            broken.append(target)
    assert not broken


def test_the_first_page_names_the_commands_a_newcomer_types():
    text = (ROOT / "README.md").read_text("utf-8")
    for command in ("make demo", "make test"):
        assert command in text


def test_every_make_target_is_explained_in_its_head():
    text = (ROOT / "Makefile").read_text("utf-8")
    head = {line.split()[2] for line in text.splitlines() if line.startswith("# make ")}
    assert {"demo", "test", "check", "bench", "clean"} <= head
    for target in head:
        assert re.search(rf"^{target}:", text, re.MULTILINE), target


def test_each_change_log_starts_with_what_is_next():
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    first = re.search(r"^## (.+)$", text, re.MULTILINE)
    assert first and first.group(1).startswith(("Unreleased", "0."))


def test_make_help_lists_the_targets():
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout
    assert "make demo" in shown and "make test" in shown
