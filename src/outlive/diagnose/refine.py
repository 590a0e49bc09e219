"""An outcome with what the rules read in the log: the finding beside the class, and a class where there was none.

``outcome.classify`` decides from records and counters; nothing here turns a class that rests on them into another.
"""

from typing import Any, Dict, Optional

from ..wire.states import OUTCOME_CLASSES
from ..wire.values import Outcome
from .engine import Engine
from .verdict import CERTAIN, judge

SILENT = frozenset({"succeeded", "stopped", "hung_exit", "lease"})
"""Outcomes of which a log has nothing to explain."""

_CLASSES = {
    "cuda_oom": "oom_gpu",
    "host_oom_cgroup": "oom_host",
    "xid_hardware": "gpu_fault",
    "cuda_driver_mismatch": "driver",
    "fabric_manager": "driver",
    "no_kernel_image": "config",
    "no_gpu_visible": "config",
    "gpu_rank_misassigned": "config",
    "port_in_use": "config",
    "bad_config": "config",
    "missing_module": "config",
    "dependency_conflict": "config",
    "native_library_missing": "config",
    "permission_denied_fs": "config",
    "hf_auth_gated": "config",
    "wandb_auth": "config",
    "ckpt_weights_only": "code",
    "state_dict_mismatch": "code",
    "shape_mismatch": "code",
    "device_mismatch": "code",
    "autograd_error": "code",
    "device_side_assert": "code",
    "cuda_fork": "code",
}
"""Classes of the log that name an outcome. Only such whose remedy is a person's: nothing resumes because of a line."""


def refined(outcome: Outcome, tail: bytes, exit_seen: bool) -> Outcome:
    """Return the outcome with ``evidence["finding"]`` from the tail of the attempt's log, where there is one."""
    if outcome.cls in SILENT or not tail:
        return outcome
    finding = finding_of(tail)
    if finding is None:
        return outcome
    evidence = dict(outcome.evidence, finding=finding)
    sentence = "%s; the log: %s (rule %s, %s)" % (
        outcome.sentence,
        finding["class"],
        finding["rule"],
        finding["confidence"],
    )
    cls = outcome.cls
    if exit_seen and cls == "unknown" and finding["confidence"] == CERTAIN:
        cls = _CLASSES.get(finding["class"], cls)
    return Outcome(cls, OUTCOME_CLASSES[cls], sentence, evidence)


def finding_of(log: bytes) -> Optional[Dict[str, Any]]:
    """Return the root cause that the rules see in a log, as plain data; None when they see none."""
    engine = Engine()
    engine.begin("log")
    engine.feed(log)
    for finding in judge(engine):
        if finding.severity == "error":
            first = finding.evidence[0] if finding.evidence else None
            return {
                "class": finding.cls,
                "rule": finding.rule,
                "confidence": finding.confidence,
                "remedy": finding.remedy,
                "text": first.text[:300] if first is not None else "",
            }
    return None
