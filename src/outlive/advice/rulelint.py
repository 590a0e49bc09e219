"""What a rule page must hold. Every fault is named with its key; a page without faults compiles."""

from __future__ import annotations

import re
from typing import Any

HOMES = ("log_rule", "probe", "metric_rule", "code_check", "advice", "by_design")
ROLES = ("conclusive", "indicator", "trigger")
SCOPES = ("run_log", "kernel_log", "scheduler", "transport", "probe_output", "shell_history", "process_list")
SEVERITIES = ("error", "warning", "info")
REMEDIES = (
    "resume", "fix_and_relaunch", "clean_and_resume", "move_box", "stop_and_ask", "no_action", "advise", "prevent",
)  # fmt: skip
CLASSES = frozenset(
    "cuda_oom host_oom_cgroup shm_too_small dataloader_worker_killed os_limit disk_full inode_exhausted quota_exceeded "
    "filesystem_io_error permission_denied_fs ckpt_corrupt ckpt_missing ckpt_weights_only state_dict_mismatch "
    "nccl_timeout_straggler nccl_rank_failure nccl_network nccl_p2p_transport collective_mismatch rendezvous_failed "
    "port_in_use ddp_unused_params gpu_rank_misassigned xid_hardware cuda_driver_mismatch fabric_manager "
    "no_kernel_image container_no_gpu no_gpu_visible cuda_illegal_memory_access device_side_assert "
    "native_library_missing extension_build_failed cuda_fork segfault_native nan_loss loss_spike_divergence "
    "fp16_scale_collapse shape_mismatch device_mismatch autograd_error missing_module dependency_conflict bad_config "
    "dataset_bad_sample python_exception_generic crlf_script hf_download_stall hf_auth_gated wandb_auth wandb_network "
    "ssh_auth ssh_dropped hostkey_changed transfer_interrupted slurm_timelimit slurm_preempted slurm_node_fail "
    "slurm_launch_error k8s_evicted k8s_pod_not_started spot_preempted reboot killed_by_signal healthy benign_warning "
    "fp16_overflow_benign".split()
)

_KEYS: dict[str, Any] = {
    "id": str, "title": str, "class": (str, type(None)), "severity": str, "home": str, "seen": str, "cause": str,
    "evidence": dict, "refines": str, "depth": int, "needs_error": bool, "confidence_when": dict, "fix": list,
    "never_do": list, "remedy": str, "prevention": str, "needs": list, "limits": str, "note": str, "proof": str,
    "examples": dict, "source_ids": list, "sources": list, "words": dict, "pip": dict, "cases": list,
}  # fmt: skip
_NEEDED = ("id", "title", "class", "severity", "home", "seen", "cause", "fix", "remedy", "sources")
_EVIDENCE = ("patterns", "anti_patterns", "extract", "exit_codes", "probes", "metric_rules", "code_checks")

Faults = list[tuple[str, str]]


def faults(rule: dict[str, Any]) -> Faults:
    """Return (key, what is wrong with it) for everything wrong with a page."""
    found: Faults = [(key, "is missing") for key in _NEEDED if key not in rule]
    for key, value in rule.items():
        wanted = _KEYS.get(key)
        if wanted is None:
            found.append((str(key), "is no key of a rule page"))
        elif not isinstance(value, wanted):
            found.append((key, f"is a {type(value).__name__}"))
    if found:
        return found
    for key, allowed in (("severity", SEVERITIES), ("home", HOMES), ("remedy", REMEDIES)):
        if rule[key] not in allowed:
            found.append((key, f"{rule[key]!r} is none of {', '.join(allowed)}"))
    if rule["class"] is not None and rule["class"] not in CLASSES:
        found.append(("class", f"{rule['class']!r} is no class of the taxonomy"))
    if not rule["fix"]:
        found.append(("fix", "says nothing"))
    for key in ("fix", "never_do", "source_ids"):
        _texts(rule, key, key, found)
    return found + _evidence(rule)


def _evidence(rule: dict[str, Any]) -> Faults:
    found: Faults = []
    evidence = rule.get("evidence") or {}
    found += [(f"evidence.{key}", "is no kind of evidence") for key in evidence if key not in _EVIDENCE]
    compiled = []
    for n, pattern in _items(evidence, "patterns", "evidence.patterns", found):
        at = f"evidence.patterns[{n}]"
        if not isinstance(pattern, dict) or not isinstance(pattern.get("re"), str):
            found.append((at, "is no mapping with an expression under `re`"))
            continue
        if pattern.get("role", "conclusive") not in ROLES:
            found.append((at, f"role {pattern['role']!r} is none of {', '.join(ROLES)}"))
        scopes = _items(pattern, "scope", f"{at}.scope", found)
        found += [(at, f"scope {s!r} is unknown") for _, s in scopes if s not in SCOPES]
        compiled += _compiled(at, pattern["re"], found)
    where = "evidence.anti_patterns"
    anti = [c for n, p in _texts(evidence, "anti_patterns", where, found) for c in _compiled(f"{where}[{n}]", p, found)]
    for n, text in _texts(evidence, "extract", "evidence.extract", found):
        _compiled(f"evidence.extract[{n}]", text, found)
    if rule["home"] == "log_rule" and not compiled and not found:
        found.append(("home", "a log rule needs a pattern"))
    examples = rule.get("examples") or {}
    fire = _texts(examples, "match", "examples.match", found)
    silent = _texts(examples, "no_match", "examples.no_match", found)
    if compiled:
        for n, line in fire:
            if not any(c.search(line) for c in compiled):
                found.append((f"examples.match[{n}]", f"no pattern hits {line!r}"))
        for n, line in silent:
            if any(c.search(line) for c in compiled) and not any(a.search(line) for a in anti):
                found.append((f"examples.no_match[{n}]", f"a pattern hits {line!r}"))
    return found


def _items(holder: dict[str, Any], key: str, at: str, found: Faults) -> list[tuple[int, Any]]:
    value = holder.get(key)
    if value is not None and not isinstance(value, list):
        found.append((at, f"is a {type(value).__name__}, not a list"))
        return []
    return list(enumerate(value or ()))


def _texts(holder: dict[str, Any], key: str, at: str, found: Faults) -> list[tuple[int, str]]:
    items = _items(holder, key, at, found)
    found += [(f"{at}[{n}]", f"is a {type(item).__name__}") for n, item in items if not isinstance(item, str)]
    return [(n, item) for n, item in items if isinstance(item, str)]


def _compiled(at: str, text: str, found: Faults) -> list[re.Pattern[str]]:
    try:
        return [re.compile(text)]
    except (re.error, OverflowError, RecursionError) as error:
        found.append((at, f"no regular expression: {error}"))
        return []
