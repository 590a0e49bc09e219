import pytest

from outlive.errors import Ambiguous, UnknownName, UsageError
from outlive.ledger import fold, new_name, resolve
from outlive.ledger.names import why_bad

RUN_A, RUN_B, RUN_C = "tiny-260801-abcd", "tiny-260801-bcde", "big-260802-abcd"


def state_of(*records):
    return fold({"n": n, "k": kind, "b": 0.0, "w": 0.0, **body} for n, (kind, body) in enumerate(records))


def box(name, **more):
    return ("box", {"name": name, **more})


def run(name, **more):
    return ("run", {"run": name, **more})


BOTH = state_of(
    box("mybox"), box("other-1"), run(RUN_A, cwd="/p/tiny"), run(RUN_B, cwd="/p/tiny"), run(RUN_C, cwd="/p/big")
)


@pytest.mark.parametrize(
    ("word", "want"),
    [
        ("mybox", "mybox"),
        ("my", "mybox"),
        (RUN_A, RUN_A),
        ("tiny-260801-a", RUN_A),
        ("big", RUN_C),
        ("@last", RUN_C),
        ("o", "other-1"),
    ],
)
def test_a_word_means_one_thing(word, want):
    assert resolve(BOTH, word).name == want


def test_a_whole_name_wins_over_a_prefix():
    assert resolve(state_of(box("a"), box("a-1")), "a").name == "a"


def test_several_are_listed():
    with pytest.raises(Ambiguous) as refused:
        resolve(BOTH, "tiny")
    assert refused.value.candidates == [RUN_A, RUN_B]
    assert refused.value.exit_code == 2


def test_a_typo_is_answered_with_what_is_near():
    with pytest.raises(UnknownName, match="did you mean `mybox`"):
        resolve(BOTH, "mybx")


def test_only_boxes_or_only_runs():
    assert resolve(BOTH, "my", want="box").name == "mybox"
    with pytest.raises(UnknownName):
        resolve(BOTH, "my", want="run")
    assert resolve(state_of(box("b1"), run("r-260801-abcd", box="b1")), "@last", want="box").name == "b1"


def test_nothing_inside_a_project_means_its_run():
    live = state_of(run(RUN_A, cwd="/p/tiny", state="succeeded"), run(RUN_B, cwd="/p/tiny", state="running"))
    assert resolve(live, "", "/p/tiny").name == RUN_B
    assert resolve(live, "", "/p/tiny/src/../src").name == RUN_B
    ended = state_of(run(RUN_A, cwd="/p/tiny", state="succeeded"), run(RUN_B, cwd="/p/tiny", state="failed"))
    assert resolve(ended, "", "/p/tiny").name == RUN_B
    with pytest.raises(Ambiguous):
        resolve(BOTH, "", "/p/tiny")


def test_the_innermost_project_counts():
    nested = state_of(run(RUN_A, cwd="/p"), run(RUN_C, cwd="/p/big"))
    assert resolve(nested, "", "/p/big/x").name == RUN_C
    assert resolve(nested, "", "/p/bigger").name == RUN_A


def test_nothing_elsewhere_means_the_only_box():
    assert resolve(state_of(box("a"), run(RUN_A, cwd="/p")), "", "/elsewhere").name == "a"
    gone = state_of(box("a"), box("b"), ("place_state", {"box": "b", "state": "gone"}))
    assert resolve(gone, "", "/").name == "a"
    with pytest.raises(Ambiguous) as refused:
        resolve(BOTH, "", "/elsewhere")
    assert refused.value.candidates == ["mybox", "other-1"]
    with pytest.raises(UnknownName):
        resolve(state_of(), "", "/")


def test_what_was_forgotten_is_not_found():
    state = state_of(box("a"), run(RUN_A), ("forgot", {"name": "a"}), ("forgot", {"name": RUN_A}))
    for word in ("a", RUN_A, "@last", ""):
        with pytest.raises(UnknownName):
            resolve(state, word)


def test_last_of_nothing():
    with pytest.raises(UnknownName):
        resolve(state_of(box("a")), "@last")


def test_new_names():
    assert new_name(BOTH, alias="gpu") == "gpu"
    assert new_name(BOTH, alias="mybox") == "mybox-2"
    assert new_name(BOTH, platform="other") == "other-2"
    assert new_name(BOTH, platform="lambda") == "lambda-1"
    assert new_name(BOTH, alias="u@h:22", platform="ssh") == "ssh-1"
    assert new_name(BOTH) == "box-1"
    assert new_name(BOTH, asked="good", alias="gpu") == "good"
    gone = state_of(
        box("other-1"), ("place_state", {"box": "other-1", "state": "gone"}), ("forgot", {"name": "other-1"})
    )
    assert new_name(gone, platform="other") == "other-2"


@pytest.mark.parametrize("asked", ["mybox", RUN_A, "@last", "-x", "a/b", "", "new-260801-abcd", "x" * 64])
def test_names_that_cannot_be(asked):
    if not asked:
        assert why_bad(asked)
        return
    with pytest.raises(UsageError):
        new_name(BOTH, asked=asked)
