"""The session in README is the recorded one."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_readme_shows_what_was_recorded():
    readme = (ROOT / "README.md").read_text("utf-8")
    found = re.search(r"<!-- session -->\n```text\n(.*?)\n```\n<!-- /session -->", readme, re.S)
    assert found
    recorded = (ROOT / "docs" / "session.txt").read_text("utf-8")
    commands = re.split(r"(?m)^(?=\$ |  \.\.\. )", found[1])
    assert len(commands) >= 5
    for part in filter(str.strip, commands):
        assert part.strip() in recorded, part.splitlines()[0]
