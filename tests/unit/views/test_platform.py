import argparse
import datetime
import json

import pytest

from outlive.cli import platforms as cli
from outlive.platforms.load import COMPILED, all_ids, load
from outlive.views import platform as view

TODAY = datetime.date(2026, 11, 21)


def outlive(capsys, *words):
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers())
    args = parser.parse_args(["platforms", *words])
    code = args.func(args)
    return code, capsys.readouterr().out


@pytest.fixture(autouse=True)
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "outlive" / "platforms").mkdir(parents=True)
    return tmp_path / "outlive" / "platforms"


def test_first_contact_with_autodl_dates_its_clocks():
    text = "\n".join(view.first_contact(load("autodl"), TODAY))
    assert "设置SSH免密登录" in text and "订阅GPU通知" in text
    assert "15 days after a stop (if that is today: 2026-12-06, reminded from 2026-12-03)" in text
    assert "7 days after a stop (if that is today: 2026-11-28, reminded from 2026-11-26)" in text
    assert "release 释放: keeps file storage, net disk (NAS), public data; loses data disk, system disk" in text
    assert "know this:" in text


def test_first_contact_in_chinese():
    text = "\n".join(view.first_contact(load("hengyuanyun"), TODAY, "zh"))
    assert "停机后 10 天（若今天开始：2026-12-01，2026-11-29 起提醒）" in text
    assert "便利功能" in text and "只有 /hy-netdisk" in text


@pytest.mark.parametrize("id", all_ids())
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_first_contact_of_each_platform_tells_survival_and_clocks(id, lang):
    p = load(id)
    lines = view.first_contact(p, TODAY, lang)
    text = "\n".join(lines)
    for clock in p.danger_clocks:
        assert clock.what.said(lang) in text
    for line in p.first_contact:
        assert line.said(lang) in text
    for verb in p.verbs:
        if verb.role in ("pause", "destroy", "cancel"):
            assert verb.label.said(lang) in text
    if not p.conveniences:
        assert ("no known conveniences" if lang == "en" else "没有已知的便利功能") in lines
    assert "None" not in text


def test_own_machines_have_no_clocks():
    assert "no danger clocks: nothing is deleted or stopped by itself" in view.first_contact(load("local"), TODAY)


def test_a_clock_that_fires_at_once_or_at_no_fixed_time_has_no_date():
    clocks = {c.id: c for c in load("runpod").danger_clocks}
    assert view.clock_dates(clocks["rp-zero-balance"], TODAY) is None
    assert view.clock_dates(clocks["rp-zero-balance-volume"], TODAY) is None
    assert view.clock_dates(clocks["rp-stale-30d"], TODAY) == (datetime.date(2026, 12, 21), datetime.date(2026, 12, 16))
    assert "at once after the balance reached zero" in view.clock_line(clocks["rp-zero-balance"], TODAY)


def test_ls_has_one_line_for_each(capsys):
    code, out = outlive(capsys, "ls")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == all_ids()


def test_ls_as_json(capsys):
    code, out = outlive(capsys, "ls", "--json")
    data = json.loads(out)
    assert (code, data["schema"]) == (0, "outlive/platforms/1")
    vast = next(p for p in data["platforms"] if p["id"] == "vastai")
    assert (vast["grace_s"], vast["mirrors_needed"], vast["meter_stop_reversible"]) == (0, "no", "no")


def test_show_answers_for_each_platform_and_verb(capsys):
    for id in all_ids():
        code, out = outlive(capsys, "show", id, "--today", "2026-11-21")
        assert code == 0
        rows = {line.split()[0] for line in out.split("The six verbs\n")[1].split("\n\n")[0].splitlines()}
        assert rows == {"up", "push", "run", "watch", "pull", "down"}


def test_show_lists_the_parts_of_a_meter_stop_in_order(capsys):
    out = outlive(capsys, "show", "paperspace")[1]
    meter = out.split("The meter\n")[1].split("\n\n")[0]
    parts = [line.split("(")[1].split(",")[0] for line in meter.splitlines() if line.strip()[:1].isdigit()]
    assert parts == ["shutdown", "destroy", "release_ip", "delete_snapshot", "delete_drive"]
    assert "still bills: static address, snapshots, shared drives" in meter


def test_show_as_json_says_what_would_be_lost(capsys):
    data = json.loads(outlive(capsys, "show", "autodl", "--json", "--today", "2026-11-21")[1])
    assert data["schema"] == "outlive/platforms/1"
    assert data["survival"]["release"]["lost"] == ["data-disk", "system-disk"]
    assert {"id": "ad-release-15d", "if_today": "2026-12-06", "warn_from": "2026-12-03"} in data["clocks"]
    assert data["bills_after_full_stop"] == []


def test_a_platform_of_ones_own_is_shown_and_linted(capsys, config):
    facts = json.loads((COMPILED / "lambda.json").read_bytes())
    facts["id"], facts["names"] = "moonbase", {"en": "Moonbase", "zh": "月面基地"}
    for kind in ("gotchas", "danger_clocks"):
        for item in facts[kind]:
            item["id"] = "moon-" + item["id"].lower()
    (config / "moonbase.json").write_text(json.dumps(facts))
    (config / "ssh.yaml").write_text("confidence: battle-tested\n")
    code, out = outlive(capsys, "show", "moonbase")
    assert code == 0 and "Moonbase (月面基地)  [moonbase]" in out
    assert "confidence comes from your file" in outlive(capsys, "show", "ssh")[1]
    listed = outlive(capsys, "ls")[1]
    assert "moonbase " in listed and "ssh* " in listed
    assert outlive(capsys, "lint", "--today", "2026-11-21")[0] == 0
    facts["meter_stop_verb"] = "evaporate"
    (config / "moonbase.json").write_text(json.dumps(facts))
    code, out = outlive(capsys, "lint", "--today", "2026-11-21")
    assert code == 1 and "error: moonbase: meter_stop_verb: no verb is called `evaporate`" in out


def test_lint_warns_then_fails_as_facts_age(capsys):
    assert outlive(capsys, "lint", "--today", "2026-12-31")[0] == 0
    code, out = outlive(capsys, "lint", "--json", "--today", "2027-01-01")
    levels = {p["level"] for p in json.loads(out)["problems"]}
    assert (code, levels) == (0, {"warning"})
    assert outlive(capsys, "lint", "--today", "2027-07-01")[0] == 1


def test_lint_takes_files(capsys, tmp_path):
    bad = tmp_path / "moonbase.yaml"
    bad.write_text("id: moonbase\n")
    code, out = outlive(capsys, "lint", str(bad))
    assert code == 1 and "moonbase: tiers: missing" in out


def test_steps_for_a_person_end_with_what_they_should_see():
    p = load("autodl")
    assert view.steps_lines(p.verb("release"), "zh") == [
        "1. 先「关机」。",
        "2. 控制台「容器实例」：更多 → 释放实例，并确认。",
        "then: 控制台列表中不再有该实例",
    ]


def test_tables_line_up_with_chinese_text():
    rows = view._table([["关机", "x"], ["abcdef", "y"]])
    assert rows == ["关机    x", "abcdef  y"]
