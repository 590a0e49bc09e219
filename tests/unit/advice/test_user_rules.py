"""A person's own rules: read beside the shipped ones, never instead of them; a fault is named with its line."""

import hashlib
import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outlive.advice
from outlive import errors
from outlive.advice import drafts, user_rules
from outlive.diagnose.engine import Engine
from outlive.diagnose.rulebook import rulebook
from outlive.diagnose.verdict import judge

RULE = """id: widget-refused
title: The widget refuses
class: bad_config
severity: error
home: log_rule
seen: widgetd says no
cause: the widget wants its token
evidence:
  patterns:
    - re: 'widgetd: refus\\w+ rc (?P<rc>\\d+)'
      role: conclusive
  anti_patterns: ['dry run']
  extract: ['rc (?P<rc>\\d+)']
fix:
  - give it rc {rc}
remedy: fix_and_relaunch
examples:
  match: ['widgetd: refusing rc 7']
  no_match: ['widgetd: accepting rc 0', 'dry run: widgetd: refusing rc 7']
sources:
  - what: a run of ours
    month: 2026-11
"""


def written(folder, text=RULE, name="widget.yaml"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, "utf-8")
    return user_rules.load(folder)


def findings(own, log):
    engine = Engine(own.book())
    engine.feed(log)
    return judge(engine)


def test_an_own_rule_names_its_line(tmp_path):
    own = written(tmp_path)
    assert own.problems == [] and list(own.pages) == ["user-widget-refused"]
    (found,) = findings(own, b"loading\nwidgetd: refusing rc 17\n")
    assert (found.rule, found.cls, found.severity, found.confidence) == (
        "user-widget-refused", "bad_config", "error", "certain",
    )  # fmt: skip
    assert not any(f.rule.startswith("user-") for f in findings(own, b"dry run: widgetd: refusing rc 17\n"))


@pytest.mark.parametrize("nothing", ["absent", "empty", "other files"])
def test_no_rules_no_book(tmp_path, nothing):
    folder = tmp_path / "rules"
    if nothing != "absent":
        folder.mkdir()
    if nothing == "other files":
        (folder / "a.log").write_text("x")
        (folder / ".hidden.yaml").write_text("{")
    own = user_rules.load(folder)
    assert own.book() is None and own.data() == {}


OOM = b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


def test_an_own_rule_wins_where_a_shipped_one_matches_too(tmp_path):
    text = RULE.replace("widgetd: refus\\w+ rc (?P<rc>\\d+)", "CUDA out of memory")
    text = text[: text.index("examples:")] + text[text.index("sources:") :]
    own = written(tmp_path, text)
    shipped = Engine()
    shipped.feed(OOM)
    assert judge(shipped)[0].cls == "cuda_oom"
    found = findings(own, OOM)
    assert found[0].rule == "user-widget-refused" and "cuda_oom" not in {f.cls for f in found}


def test_machine_first_then_own_then_the_other_specific_ones(tmp_path):
    own = written(tmp_path)
    shape = b"RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)\n"
    near = findings(own, shape + b"widgetd: refusing rc 17\n")
    assert near[0].rule == "user-widget-refused" and near[0].consequences
    machine = findings(
        own, b"widgetd: refusing rc 17\nslurmstepd: error: *** JOB 5 ON n1 CANCELLED DUE TO TIME LIMIT ***\n"
    )
    assert machine[0].cls == "slurm_timelimit"


def test_shipped_rules_are_what_they_were(tmp_path):
    folder = Path(outlive.advice.__file__).parent.parent
    files = [folder / "diagnose" / "patterns.json", folder / "advice" / "pages.json"]
    before = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    count = len(rulebook().rules)
    own = written(tmp_path)
    assert len(own.book().rules) == count + 1
    assert len(rulebook().rules) == count and "user-widget-refused" not in rulebook().by_id
    assert [hashlib.sha256(path.read_bytes()).hexdigest() for path in files] == before


PATTERNS = "  patterns:\n    - re: 'widgetd: refus\\w+ rc (?P<rc>\\d+)'\n      role: conclusive\n"
FAULTS = {
    "severity": ("severity: error", "severity: awful", 4),
    "class": ("class: bad_config", "class: my_own", 3),
    "no class": ("class: bad_config", "class: null", 3),
    "remedy": ("remedy: fix_and_relaunch", "remedy: pray", 16),
    "expression": ("(?P<rc>\\d+)'\n      role", "(?P<rc>\\d+'\n      role", 10),
    "role": ("role: conclusive", "role: sure", 10),
    "unknown key": ("seen: widgetd", "scene: widgetd", 1),
    "example silent": ("match: ['widgetd: refusing rc 7']", "match: ['hello there']", 18),
    "look-alike fires": ("'widgetd: accepting rc 0'", "'widgetd: refused rc 0'", 19),
    "a fix of numbers": ("- give it rc {rc}", "- 17", 15),
    "patterns are words": (PATTERNS, "  patterns: [foo]\n", 9),
    "no pattern": (PATTERNS, "", 5),
    "a source without a month": ("    month: 2026-11\n", "", 21),
    "a probe of no command": ("fix:\n", "  probes: [{kind: shell}]\nfix:\n", 14),
    "no word in it": ("widgetd: refus\\w+ rc (?P<rc>\\d+)", "re\\w+ng", 9),
    "not YAML": ("cause: the", "cause: the: the", 7),
    "a key twice": ("seen: widgetd says no", "title: again", 6),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_with_its_line_and_the_others_work(tmp_path, fault):
    old, new, line = FAULTS[fault]
    assert old in RULE
    written(tmp_path, RULE.replace(old, new), "broken.yaml")
    own = written(tmp_path)
    (problem,) = own.problems
    assert (problem.file, problem.line) == (str(tmp_path / "broken.yaml"), line), problem.sentence()
    assert problem.what and problem.safe and f"broken.yaml:{line}" in problem.sentence()
    assert list(own.pages) == ["user-widget-refused"]
    assert findings(own, b"widgetd: refusing rc 17\n")[0].rule == "user-widget-refused"
    json.dumps(own.data(), allow_nan=False)


@pytest.mark.parametrize(
    "text", ["", "- a\n", "x", "? [a]\n: 1\n", "a: 2026-13-45\n", "[" * 5000, "\x07", RULE + "#" * 300_000, "1: 2\n"]
)
def test_what_is_no_rule_at_all(tmp_path, text):
    own = written(tmp_path, text, "odd.yml")
    assert len(own.problems) == 1 and own.problems[0].file.endswith("odd.yml") and own.book() is None


def test_what_is_no_file(tmp_path):
    (tmp_path / "dir.yaml").mkdir()
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "gone.yaml").symlink_to(tmp_path / "nowhere")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00id: x")
    own = written(tmp_path)
    assert len(own.problems) == 4 and list(own.pages) == ["user-widget-refused"]
    (tmp_path / "a-file").write_text("x")
    assert len(user_rules.load(tmp_path / "a-file").problems) == 1


def test_an_id_can_be_had_once(tmp_path):
    written(tmp_path)
    own = written(tmp_path, RULE.replace("id: widget", "id: user-widget"), "zweit.yaml")
    (problem,) = own.problems
    assert problem.line == 1 and "widget.yaml" in problem.what


def test_without_pyyaml_the_shipped_rules_go_on(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    written(tmp_path)
    own = written(tmp_path, RULE, "b.yaml")
    (problem,) = own.problems
    assert "PyYAML" in problem.what and "2 rules" in problem.what
    assert problem.next == [["pip", "install", "outlive[yaml]"]]
    assert own.book() is None


def test_a_draft_is_not_used_before_it_is_filled_in(tmp_path):
    log = b"step 1\nwidgetd[17]: refusing token=hf_abcdefghijklmnopqrstuvwxyz0123 for 10.1.2.3 (rc 17)\n"
    made = drafts.draft(log.decode(), directory=tmp_path)
    own = user_rules.load(tmp_path)
    assert own.problems == [] and own.book() is None
    assert own.data()["drafts"] == [{"file": str(made.rule), "fill_in": ["cause", "fix"]}]
    text = made.rule.read_text("utf-8")
    assert "hf_abc" not in text and "10.1.2.3" not in text
    for said in ("(write here: why it happens)", "(write here: what helps, in order)"):
        assert said in text
        text = text.replace(said, "ask widgetd")
    made.rule.write_text(text, "utf-8")
    own = user_rules.load(tmp_path)
    assert own.problems == [] and own.drafts == {}
    for known in (log, made.sample.read_bytes()):
        found = findings(own, known)
        assert found[0].rule == f"user-{made.rule.stem}" and found[0].severity == "error"


@settings(max_examples=40, deadline=None)
@given(st.text(min_size=1, max_size=60))
def test_a_draft_of_any_line_is_a_rule_once_filled_in(tmp_path_factory, words):
    folder = tmp_path_factory.mktemp("rules")
    try:
        drafts.draft(f"widgetd fails: {words}", cause="it does", fix=["ask it"], name="a", directory=folder)
    except errors.UsageError:
        assert not list(folder.iterdir())
        return
    own = user_rules.load(folder)
    assert own.problems == [] and list(own.pages) == ["user-a"]


def test_the_directory_is_the_users_configuration():
    assert str(user_rules.directory({"XDG_CONFIG_HOME": "/c", "HOME": "/h"})) == "/c/outlive/rules"
    assert str(user_rules.directory({"HOME": "/h"})) == "/h/.config/outlive/rules"
