"""training_config.yaml: what is wrong is named, phases and their learning rate are as the file says."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

DEFAULTS = {"train": {"seed": 1, "lr": 1e-3, "compile": "auto", "deterministic": False}}
PHASES = "phases:\n  - {name: a, data: x.txt, steps: 10}\n"


def load(template: Any, path: Path, text: str, *overrides: str) -> Any:
    config = template("common/config.py")
    path.write_text(text, "utf-8")
    return config.load(str(path), DEFAULTS, overrides)


def test_the_file_lies_over_the_defaults_and_words_over_both(template: Any, tmp_path: Path) -> None:
    got = load(template, tmp_path / "c.yaml", "train: {seed: 5}\n" + PHASES, "train.lr=3e-4")
    assert got["train"] == {"seed": 5, "lr": 3e-4, "compile": "auto", "deterministic": False}
    assert got["phases"][0]["data"] == {"x.txt": 1.0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train: {sed: 5}\n" + PHASES, "did you mean `seed`"),
        ("trian: {seed: 5}\n" + PHASES, "did you mean `train`"),
        ("train: {seed: abc}\n" + PHASES, "a number is expected"),
        ("train: {deterministic: 1}\n" + PHASES, "bool is expected"),
        ("phases:\n  - {name: late, data: x.txt}\n", "phase `late`: it needs an end"),
        ("phases:\n  - {name: late, data: x.txt, steps: 2, tokens: 3}\n", "it needs an end"),
        ("phases:\n  - {name: late, data: x.txt, steps: 0}\n", "at least 1"),
        ("phases:\n  - {name: late, data: x.txt, step: 2}\n", "did you mean `steps`"),
        ("phases:\n  - {name: late, data: {x.txt: 0}, steps: 2}\n", "all weights"),
        ("phases:\n  - {name: late, data: x.txt, steps: 2, lr: {shape: cosin}}\n", "did you mean `cosine`"),
        ("phases: []\n", "at least one phase"),
        ("train: [1]\n" + PHASES, "must hold keys"),
        ("{", "is not YAML"),
    ],
)
def test_what_is_wrong_is_named(template: Any, tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ValueError, match="c.yaml") as raised:
        load(template, tmp_path / "c.yaml", text)
    assert said in str(raised.value)


def phases(template: Any, *rows: dict[str, Any]) -> Any:
    config = template("common/config.py")
    return config.Phases(config._phases([{"data": "x", **row} for row in rows], "c.yaml"), tokens_per_step=100)


def test_the_rate_follows_warm_up_and_cosine(template: Any) -> None:
    plan = phases(template, {"steps": 20, "lr": {"peak": 1.0, "end": 0.2, "warmup_steps": 4}})
    assert [plan.lr(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    for step in range(4, 20):
        share = 0.5 * (1 - math.cos(math.pi * (step - 4) / 16))
        assert plan.lr(step) == pytest.approx(1.0 - 0.8 * share)


def test_a_phase_begins_where_the_one_before_ended(template: Any) -> None:
    plan = phases(
        template,
        {"steps": 10, "lr": {"peak": 1.0, "end": 0.5}},
        {"tokens": 1001, "lr": {"shape": "linear", "peak": 0.9, "end": 0.1, "warmup_steps": 2}},
        {"steps": 3, "lr": {"shape": "constant", "peak": 0.3}},
    )
    assert plan.ends == [10, 21, 24]
    assert plan.total == 24
    assert [plan.index(step) for step in (0, 9, 10, 20, 21, 99)] == [0, 0, 1, 1, 2, 2]
    assert plan.lr(10) == pytest.approx(0.5 + 0.4 / 2)
    assert {plan.lr(step) for step in (21, 22, 23)} == {0.3}


def test_criteria_gate_the_next_phase(template: Any) -> None:
    plan = phases(template, {"steps": 1, "success": {"val_loss_below": 2}})
    assert plan.unmet(0, {"val_loss": 1.9}) == ""
    assert "2.5" in plan.unmet(0, {"val_loss": 2.5})
    assert "not met" in plan.unmet(0, {"val_loss": math.nan})
    assert "not measured" in plan.unmet(0, {"loss": 1.0})


@pytest.mark.parametrize("kind", ["nanogpt", "litgpt", "hf-trainer"])
def test_every_shipped_file_loads_with_its_defaults(template: Any, kind: str) -> None:
    import ast

    folder = Path(__file__).parents[3] / "src" / "outlive" / "scaffold" / "templates"
    tree = ast.parse((folder / kind / "train.py").read_text("utf-8"))
    defaults = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DEFAULTS"
    )
    config = template("common/config.py").load(str(folder / kind / "training_config.yaml"), defaults)
    assert [phase["name"] for phase in config["phases"]] == ["broad", "curated", "domain", "cooldown"]
    assert set(config) == {*defaults, "phases"}
