"""An outcome and what the log says beside it."""

from outlive.diagnose.outcome import classify
from outlive.diagnose.refine import refined
from outlive.wire.values import Evidence

OOM = b"step 1 loss 2.0\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


def test_the_finding_stands_beside_the_class():
    outcome = refined(classify(Evidence(exit_code=1, exit_seen=True, fatal_lines=("CUDA out of memory",))), OOM, True)
    assert outcome.cls == "oom_gpu"
    assert outcome.evidence["finding"]["rule"] == "gpu-out-of-memory"
    assert "gpu-out-of-memory" in outcome.sentence


def test_an_unknown_end_takes_the_class_of_a_certain_line():
    before = classify(Evidence(exit_code=1, exit_seen=True))
    assert before.cls == "unknown"
    after = refined(before, b"ModuleNotFoundError: No module named 'apex'\n", True)
    assert (after.cls, after.remedy) == ("config", "fix")


def test_records_and_counters_are_not_overruled():
    for evidence in (
        Evidence(exit_code=0, exit_seen=True, our_stop="asked"),
        Evidence(exit_code=137, signal=9, exit_seen=True, oom_kill_delta=1),
        Evidence(exit_seen=False),
    ):
        before = classify(evidence)
        assert refined(before, OOM, evidence.exit_seen).cls == before.cls


def test_a_log_that_says_nothing_changes_nothing():
    before = classify(Evidence(exit_code=1, exit_seen=True))
    assert refined(before, b"step 1 loss 2.0\n", True) == before
    assert refined(before, b"", True) == before
