"""The short way to a platform's name says what the long way says."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.errors import UnknownName
from outlive.platforms.brief import brief
from outlive.platforms.load import all_ids, load


@pytest.mark.parametrize("id", all_ids())
def test_it_says_what_the_whole_model_says(id: str, tmp_path: Path) -> None:
    full = load(id)
    for overrides in (None, tmp_path, tmp_path / "none"):
        short = brief(id, overrides=overrides)
        assert (short.names.en, short.has_meter) == (full.names.en, full.has_meter)


def test_the_users_own_facts_win(tmp_path: Path) -> None:
    (tmp_path / "ssh.json").write_text('{"names": {"en": "The lab", "zh": "x"}}')
    assert brief("ssh", overrides=tmp_path).names.en == "The lab"


def test_an_unknown_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownName):
        brief("sssh")
    with pytest.raises(UnknownName):
        brief("../compiled/ssh/..")
