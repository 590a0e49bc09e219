"""``outlive diagnose --propose-rule`` and own rules, as a person meets them."""

import json
import stat
import sys
import types

import pytest

from outlive import errors
from outlive.cli.main import main

LOG = b"loading widgets\nwidgetd: refusing token=hf_abcdefghijklmnopqrstuvwxyz0123 of me@example.org\n"
OOM = b"step 1 loss 2.1\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


@pytest.fixture
def rules(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    return tmp_path / "config" / "outlive" / "rules"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "train.log"
    path.write_bytes(LOG)
    return str(path)


@pytest.fixture
def outlive(capsys):
    def called(*words):
        assert main(["diagnose", *words]) == 0
        out = capsys.readouterr().out
        return json.loads(out) if "--json" in words else out

    return called


def fill_in(path):
    text = path.read_text("utf-8")
    for said in ("(write here: why it happens)", "(write here: what helps, in order)"):
        text = text.replace(said, "ask widgetd for a token")
    path.write_text(text, "utf-8")


def test_an_unknown_log_becomes_known(outlive, rules, log):
    assert "--propose-rule" in outlive(log)
    assert not rules.exists()
    text = outlive(log, "--propose-rule", "--name", "widget-token")
    draft, sample = rules / "widget-token.yaml", rules / "widget-token.log"
    for said in (str(draft), str(sample), "to be written: title, cause, fix", f"outlive diagnose {sample}"):
        assert said in text
    before = outlive(log)
    assert f"{draft} is a draft, not used: cause and fix to be written" in before and "ask widgetd" not in before
    fill_in(draft)
    for path in (log, str(sample)):
        data = outlive(path, "--json")
        first = data["findings"][0]
        assert (data["verdict"], first["rule"], first["cause"]) == (
            "found", "user-widget-token", "ask widgetd for a token",
        )  # fmt: skip
        assert first["rule_file"] == str(draft)
        assert data["own_rules"]["used"] == ["user-widget-token"]


def test_as_data(outlive, rules, log):
    data = outlive(log, "--propose-rule", "--json")
    made = data["proposed_rule"]
    assert set(made) == {"rule", "sample", "fires_on", "fill_in", "test"}
    assert made["test"] == ["outlive", "diagnose", made["sample"]]
    assert {made["rule"], made["sample"]} == {str(path) for path in rules.iterdir()}


def test_no_secret_in_the_draft(outlive, rules, log):
    outlive(log, "--propose-rule")
    for path in rules.iterdir():
        text = path.read_text("utf-8")
        assert "REDACTED" in text and "hf_abc" not in text and "me@example" not in text
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_draft_is_never_written_over(outlive, rules, log):
    outlive(log, "--propose-rule", "--name", "mine")
    fill_in(rules / "mine.yaml")
    before = {path: path.read_bytes() for path in rules.iterdir()}
    outlive(log, "--propose-rule", "--name", "mine")
    assert {path: path.read_bytes() for path in before} == before
    assert (rules / "mine-2.yaml").exists()


def test_of_a_known_log_the_deciding_line_when_asked(outlive, rules, tmp_path):
    path = tmp_path / "oom.log"
    path.write_bytes(OOM + b"[rank1]: some last words\n" * 100)
    data = outlive(str(path), "--propose-rule", "--json")
    assert "CUDA out of memory" in data["proposed_rule"]["fires_on"]
    (sample,) = rules.glob("*.log")
    assert "CUDA out of memory" in sample.read_text("utf-8")
    (draft,) = rules.glob("*.yaml")
    fill_in(draft)
    assert outlive(str(path), "--json")["findings"][0]["rule"].startswith("user-")


def test_a_broken_file_is_named_and_the_rest_works(outlive, rules, log, tmp_path):
    outlive(log, "--propose-rule", "--name", "good")
    fill_in(rules / "good.yaml")
    (rules / "bad.yaml").write_text("id: x\ntitle: [\n", "utf-8")
    text = outlive(log)
    assert f"own rules: {rules / 'bad.yaml'}:3" in text and "user-good" in text
    (problem,) = outlive(log, "--json")["own_rules"]["problems"]
    assert problem["line"] == 3 and problem["file"] == str(rules / "bad.yaml")
    oom = tmp_path / "oom.log"
    oom.write_bytes(OOM)
    assert outlive(str(oom), "--json")["findings"][0]["class"] == "cuda_oom"


def test_without_pyyaml(outlive, rules, log, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    oom = tmp_path / "oom.log"
    oom.write_bytes(OOM)
    assert "PyYAML" not in outlive(str(oom))
    outlive(log, "--propose-rule")  # writing needs none
    text = outlive(str(oom))
    assert "PyYAML" in text and "next: pip install 'outlive[yaml]'" in text
    assert "GPU memory exhausted" in text


@pytest.mark.parametrize("words", [["--name", "x"], ["--propose-rule", "--name", "../x"]])
def test_usage(rules, log, words, capsys):
    assert main(["diagnose", log, *words]) == errors.UsageError.exit_code
    assert capsys.readouterr().err and not rules.exists()


def test_an_empty_log_gives_no_draft(rules, tmp_path, capsys):
    path = tmp_path / "a.log"
    path.write_bytes(b"\n")
    assert main(["diagnose", str(path), "--propose-rule"]) == errors.UsageError.exit_code
    assert "no line" in capsys.readouterr().err and not rules.exists()


def test_a_directory_that_cannot_be_made(tmp_path, log, monkeypatch, capsys):
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert main(["diagnose", log, "--propose-rule"]) == errors.UsageError.exit_code
    assert "cannot be" not in capsys.readouterr().out


def test_a_runs_declared_secrets_are_not_in_its_draft(rules, tmp_path, monkeypatch):
    from outlive.runs import diagnose, logs
    from outlive.runs.home import Home

    home = Home(tmp_path / "home")
    said = b"widgetd: refusing sesame today\n"
    monkeypatch.setattr(type(home.ledger.secrets), "redact", lambda self, text: text.replace("sesame", "[redacted]"))
    monkeypatch.setattr(logs, "whole", lambda home, record: iter([said]))
    run = types.SimpleNamespace(run="r1")
    made = diagnose.of_run(home, run, "mine")["proposed_rule"]
    assert all("sesame" not in path.read_text("utf-8") for path in rules.iterdir())
    assert "[redacted]" in made["fires_on"]
    fill_in(rules / "mine.yaml")
    assert diagnose.of_run(home, run)["findings"][0]["rule"] == "user-mine"


def test_explain_prints_an_own_rule(outlive, rules, log, capsys):
    outlive(log, "--propose-rule", "--name", "mine")
    fill_in(rules / "mine.yaml")
    assert main(["explain", "user-mine"]) == 0
    assert "ask widgetd for a token" in capsys.readouterr().out
    assert main(["explain", "user-mine", "--lang", "zh", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["id"] == "user-mine"
