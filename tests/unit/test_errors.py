"""The tree of errors: codes, slugs, texts, and the rule by which several endings become one."""

import itertools
import json
import pickle

import pytest

from outlive import errors
from outlive.errors import all_errors, nearest, worst


def test_every_class_has_its_own_slug_and_a_documented_code():
    tree = all_errors()
    assert len({cls.code for cls in tree}) == len(tree)
    assert {cls.exit_code for cls in tree} | {0} == set(errors.EXIT_CODES)
    assert set(errors.PRECEDENCE) == set(errors.EXIT_CODES)


def test_the_drawing_shows_every_class_with_its_code():
    drawn = errors.__doc__.split("\n\n")
    code, shown = None, {}
    for line in "\n".join(drawn).splitlines():
        words = line.replace("├─", " ").replace("└─", " ").replace("│", " ").split()
        if words and words[0] in {cls.__name__ for cls in all_errors()}:
            if len(words) > 1 and words[1].isdigit():
                code = int(words[1])
            shown[words[0]] = code
    for cls in all_errors()[1:]:
        assert shown[cls.__name__] == cls.exit_code, cls.__name__


@pytest.mark.parametrize("cls", all_errors())
def test_common_fields_survive_json(cls):
    error = cls("the disk is full", safe="nothing was written", next=[["outlive", "ps"]], why=["0 bytes free"])
    seen = json.loads(json.dumps(error.to_json()))
    assert seen["schema"] == "outlive/error/1"
    assert seen["error"] == cls.code
    assert seen["exit_code"] == cls.exit_code
    assert (seen["what"], seen["safe"]) == ("the disk is full", "nothing was written")
    assert seen["why"] == ["0 bytes free"]
    assert seen["next"] == [["outlive", "ps"]]
    assert str(error) == "the disk is full"


@pytest.mark.parametrize("cls", all_errors())
def test_details_never_hide_a_common_field(cls):
    common = {"schema", "error", "exit_code", "what", "why", "safe", "next"}
    assert not common & set(cls("x").details())


def test_generators_are_read_once_and_kept():
    error = errors.GateRefused("no", why=(f"clause {n}" for n in range(2)), next=(["a", "b"] for _ in range(1)))
    assert error.to_json() == error.to_json()
    assert error.why == ["clause 0", "clause 1"]
    assert error.next == [["a", "b"]]


def test_sentence_has_what_why_safe_next_in_that_order_and_quotes_words():
    error = errors.GateRefused(
        "`down` would lose 2 files",
        why=["out/best.pt is nowhere else"],
        safe="box a is up and billing; nothing was changed",
        next=[["outlive", "pull", "my run"], ["outlive", "down", "a", "--dry-run"]],
    )
    assert error.sentence().splitlines() == [
        "`down` would lose 2 files",
        "  - out/best.pt is nowhere else",
        "safe: box a is up and billing; nothing was changed",
        "next: outlive pull 'my run'",
        "next: outlive down a --dry-run",
    ]
    assert errors.TimeOver("nothing yet").sentence() == "nothing yet"


def test_bad_config_names_file_line_key_and_suggestion():
    error = errors.BadConfig(
        "no such key",
        file="outlive.toml",
        line=7,
        key="artifacts.rooster",
        suggestion="roster",
        safe="nothing was done",
    )
    assert error.sentence().splitlines() == [
        "outlive.toml:7 [artifacts.rooster]: no such key (did you mean `roster`?)",
        "safe: nothing was done",
    ]
    assert error.to_json()["line"] == 7
    assert errors.BadConfig("not TOML").sentence() == "outlive.toml: not TOML"


def test_unknown_name_suggests_lists_and_says_when_there_is_none():
    error = errors.UnknownName.of("box", "lamda-1", ["runpod-2", "lambda-1"])
    assert "did you mean `lambda-1`?" in error.sentence()
    assert "known: lambda-1, runpod-2" in error.sentence()
    assert "there is none yet" in errors.UnknownName.of("run", "x", []).sentence()
    many = errors.UnknownName.of("run", "zzz", [f"run-{n:02}" for n in range(30)])
    assert "and 18 more" in many.sentence()
    assert len(many.to_json()["candidates"]) == 30


def test_no_space_keeps_unknown_apart_from_zero():
    seen = errors.NoSpace("full", bytes_needed=10, bytes_free=0).to_json()
    assert seen["bytes_free"] == 0
    assert seen["inodes_free"] is None


def test_not_here_names_the_capability_and_the_reason():
    error = errors.NotHere.of("stop", "signal", "kernels end by themselves", place="kaggle-1")
    assert error.what == "stop: not here (kaggle-1), because kernels end by themselves"
    seen = error.to_json()
    assert (seen["exit_code"], seen["error"], seen["capability"], seen["place"]) == (
        4,
        "not-here",
        "signal",
        "kaggle-1",
    )
    assert seen["because"] == "kernels end by themselves" and seen["safe"] == "Nothing was done."


def test_worst_follows_the_written_precedence():
    assert worst([]) == 0
    assert worst([0, 0]) == 0
    order = [130, 2, 4, 6, 3, 5, 1, 7, 0]
    for first, second in itertools.combinations(order, 2):
        assert worst([second, first, second]) == first


def test_worst_refuses_foreign_numbers():
    with pytest.raises(ValueError, match="137"):
        worst([0, 137])


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("rooster", "roster"),
        ("max-cost", "max_cost"),
        ("MAX_HOURS", "max_hours"),
        ("", ""),
        ("xylophone", ""),
        ("roster", "roster"),
    ],
)
def test_nearest(word, meant):
    assert nearest(word, ["roster", "max_cost", "max_hours", "checkpoints"]) == meant


@pytest.mark.parametrize("cls", all_errors())
def test_an_error_crosses_a_process_border(cls):
    # Workers of a process pool send errors back pickled.
    error = pickle.loads(pickle.dumps(cls("gone", safe="all", why=["a"])))
    assert (type(error), error.what, error.safe, error.why) == (cls, "gone", "all", ["a"])
