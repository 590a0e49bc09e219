import json

import pytest

from outlive.errors import BadConfig
from outlive.platforms import compile as compiler
from outlive.platforms import docs
from outlive.platforms.load import COMPILED, load


def test_what_is_shipped_is_what_the_sources_say():
    assert compiler.stale(compiler.render()) == []
    assert compiler.main(["--check"]) == 0


def test_a_changed_source_and_a_leftover_are_stale(tmp_path, capsys):
    to = tmp_path / "compiled"
    assert compiler.main(["--to", str(to)]) == 0
    (to / "autodl.json").write_text("{}")
    (to / "gone.json").write_text("{}")
    assert compiler.main(["--check", "--to", str(to)]) == 1
    assert "autodl.json" in capsys.readouterr().err
    assert compiler.main(["--to", str(to)]) == 0
    assert not (to / "gone.json").exists()
    assert (to / "autodl.json").read_bytes() == (COMPILED / "autodl.json").read_bytes()


def test_wrong_facts_are_not_compiled(tmp_path, moonbase):
    moonbase["meter_stop_verb"] = "evaporate"
    (tmp_path / "moonbase.yaml").write_text(json.dumps(moonbase))
    with pytest.raises(BadConfig) as error:
        compiler.render(tmp_path)
    assert "moonbase: meter_stop_verb: no verb is called `evaporate`" in error.value.why
    assert compiler.main(["--facts", str(tmp_path), "--to", str(tmp_path / "out")]) == 1
    assert not (tmp_path / "out").exists()


def test_the_index_tells_when_anything_changed(with_moonbase):
    ours = json.loads((COMPILED / "index.json").read_bytes())
    theirs = json.loads((with_moonbase / "index.json").read_bytes())
    assert ours["digest"] != theirs["digest"]
    assert set(theirs["platforms"]) - set(ours["platforms"]) == {"moonbase"}
    assert load("moonbase", compiled=with_moonbase).tiers_for("root")[0].path == "/crater/moon-tmp"


def test_the_reference_pages_are_up_to_date():
    assert docs.stale(docs.render()) == []


def test_a_new_platform_gets_a_page(with_moonbase, tmp_path):
    pages = docs.render(with_moonbase)
    assert "`/crater/moon-fs`" in pages["moonbase.md"]
    assert "[Moonbase](moonbase.md)" in pages["index.md"]
    assert docs.stale(pages, tmp_path / "none") == sorted(pages)
