"""The correction of `plan --measure`: kept for a GPU, read back, refused when it cannot be meant."""

from typing import NamedTuple

import pytest

from outlive.errors import BadConfig
from outlive.views import plan_measured


class Found(NamedTuple):
    device: str = "cpu"
    layers: int = 2
    micro_batch: int = 1
    seq_len: int = 256
    states_predicted: float = 1e6
    states_measured: float = 1e6
    activations_predicted: float = 2e6
    activations_measured: float = 2.2e6
    peak_predicted: float | None = None
    peak_measured: float | None = None
    tokens_per_second_predicted: float | None = None
    tokens_per_second: float = 100.0
    activation_scale: float = 1.1
    speed_scale: float | None = None


def test_kept_for_one_gpu_beside_others(tmp_path):
    plan_measured.keep(Found(), "t4", tmp_path)
    plan_measured.keep(Found(activation_scale=0.9, speed_scale=0.8), "l4", tmp_path)
    assert plan_measured.kept("t4", tmp_path) == (1.1, None)
    assert plan_measured.kept("l4", tmp_path) == (0.9, 0.8)
    assert plan_measured.kept("a100-80gb-sxm", tmp_path) is None


@pytest.mark.parametrize("text", ["{", '{"t4": {"activation_scale": 99, "speed_scale": 1}}', '{"t4": {}}'])
def test_a_file_that_cannot_be_meant_is_refused(tmp_path, text):
    (tmp_path / plan_measured.FILE).write_text(text)
    with pytest.raises(BadConfig):
        plan_measured.kept("t4", tmp_path)


def test_both_columns_are_shown():
    text = "\n".join(plan_measured.lines(Found(peak_predicted=3e6, peak_measured=3.1e6), "/somewhere"))
    assert "3.0 MB" in text and "3.1 MB" in text and "/somewhere" in text
    assert plan_measured.data(Found(), "")["schema"] == "outlive/plan-measured/1"
