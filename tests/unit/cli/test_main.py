"""The edges of the command line, without any box."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import outlive as package
from outlive import errors
from outlive.cli import main as cli

ENV = {**os.environ, "PYTHONPATH": str(pathlib.Path(package.__file__).resolve().parent.parent)}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def outlive(capsys, *words):
    code = cli.main(list(words))
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_table_is_sorted_and_every_verb_says_the_same_line():
    assert list(cli.VERBS) == sorted(cli.VERBS)
    below = cli._below(cli.build_parser())
    assert list(below) == list(cli.VERBS)
    for verb, line in cli.VERBS.items():
        registered = []

        class Below:
            def add_parser(self, name, registered=registered, **settings):
                registered.append((name, settings.get("help")))
                return cli.Parser(prog=f"outlive {name}")

        cli._module(verb).add_parser(Below())
        assert registered == [(verb, line)]


def test_every_verb_takes_json_and_none_takes_yes():
    for verb, parser in cli._below(cli.build_parser()).items():
        flags = {flag for action in parser._actions for flag in action.option_strings}
        words = cli._below(parser)
        assert "--json" in flags or all("--json" in p.format_help() for p in words.values()), verb
        assert not flags & {"--yes", "-y", "--force"}, verb


def test_a_verb_with_a_typing_error_names_the_nearest(capsys):
    code, out, err = outlive(capsys, "wacth", "x")
    assert (code, out) == (2, "") and "did you mean `watch`?" in err and "next: outlive watch x" in err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["run", "--nmae", "x"], "--name"),
        (["ps", "--jsno"], "--json"),
        (["watch", "--untill", "done"], "--until"),
        (["run", "python", "train.py"], "outlive run -- python train.py"),
        (["ps", "--", "x"], "takes no command"),
        (["watch", "--once", "--follow"], "--once is one look"),
        (["extend", "x"], "how much more"),
        (["logs", "--tail", "ten"], "--tail"),
        (["tunnel", "gpu", "http"], "PORT"),
        (["push", "--data", "x"], "SRC:DST"),
        (["run", "--env", "A", "--", "x"], "NAME=VALUE"),
        (["run", "--secret", "A=sk-123", "--", "x"], "never a value"),
        (["run", "--durable", "somewhere", "--", "x"], "--durable"),
        (["run", "--max-cost", "cheap", "--", "x"], "not an amount"),
        (["run", "--stall", "soon", "--", "x"], "not a time"),
        (["run", "--keep-latest", "0", "--", "x"], "at least 1"),
        (["run", "--exit-status", "--", "x"], "--wait"),
        (["run", "--roster", "../x", "--", "x"], "../x"),
        (["run", "--max-hours", "-1", "--", "x"], "more than 0"),
        (["run"], "nothing to run"),
        (["run", "--", "x"], "no box is known"),
        (["up"], "needs an address"),
        (["up", "local:", "--price", "cheap"], "not an amount"),
        (["watch", "nobody"], "nobody"),
        (["down", "--aproval", "x"], "--approval"),
        (["approve", "down", "x"], "--when-proved"),
    ],
)
def test_what_cannot_be_meant_is_2_with_a_hint_and_no_state(capsys, home, words, hint):
    code, out, err = outlive(capsys, *words)
    assert code == 2 and out == ""
    assert hint in err and "Traceback" not in err
    assert not (home / "ledger.jsonl").exists() and not (home / "bugs").exists()


@pytest.mark.parametrize(
    "words", [["wacth", "--json"], ["run", "--json"], ["ps", "--json", "--x"], ["watch", "no", "--json"]]
)
def test_with_json_an_error_is_one_object_on_stdout(capsys, words):
    code, out, err = outlive(capsys, *words)
    said = json.loads(out)
    assert said["schema"] == errors.SCHEMA and said["exit_code"] == code == 2 and err == ""
    assert isinstance(said["why"], list) and isinstance(said["next"], list) and "safe" in said


def test_json_after_two_dashes_is_the_commands_own(capsys):
    code, out, _ = outlive(capsys, "run", "--", "tool", "--json")
    assert code == 2 and out == ""


def test_bad_toml_is_named_with_line_key_and_suggestion(capsys, tmp_path):
    (tmp_path / "outlive.toml").write_text('[job]\nname = "a"\nrnu = "x"\n')
    code, _, err = outlive(capsys, "run")
    assert code == 2 and "outlive.toml:3" in err and "job.rnu" in err and "did you mean `run`" in err


def test_a_newcomer_is_told_what_to_type(capsys, home):
    code, out, _ = outlive(capsys)
    assert code == 0 and "outlive demo" in out
    assert json.loads(outlive(capsys, "--json")[1])["schema"] == "outlive/overview/1"
    assert not home.exists()


def test_version_in_three_ways(capsys):
    assert outlive(capsys, "version")[1] == outlive(capsys, "--version")[1]
    said = json.loads(outlive(capsys, "version", "--json")[1])
    assert said["schema"] == "outlive/version/1" and 0 < said["supervisor"]["bytes"] < 200_000


def test_a_bug_leaves_a_report_without_values(capsys, home, monkeypatch):
    from outlive.cli import ps

    def broken(args):
        raise ZeroDivisionError("one over nothing")

    monkeypatch.setattr(ps, "run", broken)
    code, _, err = outlive(capsys, "ps", "--timeout=7")
    assert code == 1 and "a bug in outlive: ZeroDivisionError" in err
    (report,) = (home / "bugs").iterdir()
    text = report.read_text()
    assert "Traceback" in text and "--timeout" in text and "--timeout=7" not in text and str(report) in err


def test_ctrl_c_is_130_and_says_that_the_run_goes_on(capsys, monkeypatch):
    from outlive.cli import watch

    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr(watch, "run", interrupted)
    code, _, err = outlive(capsys, "watch")
    assert code == 130 and "The run goes on." in err


def test_help_imports_no_verb_and_nothing_heavy():
    code = (
        "import sys\nfrom outlive.cli.main import main\nmain(['--help'])\n"
        "heavy = ('outlive.cli.', 'outlive.runs', 'outlive.views', 'rich', 'yaml')\n"
        "print([m for m in sys.modules if m.startswith(heavy)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENV)
    assert done.stdout.splitlines()[-1] == "['outlive.cli.main']"


@pytest.mark.parametrize("lang", ["C", "POSIX", "en_US.ISO-8859-1"])
def test_no_locale_makes_it_fail(lang, tmp_path):
    env = {
        **ENV,
        "LANG": lang,
        "LC_ALL": lang,
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "ascii",
    }
    for words in (["platforms", "show", "autodl", "--lang", "zh"], ["watch", "模型"], ["--help"]):
        done = subprocess.run([sys.executable, "-m", "outlive", *words], env=env, capture_output=True)
        assert done.returncode in (0, 2) and b"Traceback" not in done.stderr and b"a bug" not in done.stderr


def test_a_reader_that_leaves_early_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m outlive platforms show autodl | head -n 1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        env=ENV,
    )
    assert done.returncode == 0 and done.stderr == b""
