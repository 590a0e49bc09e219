"""What ``doctor`` asks of a machine: one object, within a budget, and nothing is written."""

from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from outlive.probes import audit
from outlive.probes.audit import Emit
from outlive.wire.clock import boot_s, wall_s


def checkup(
    roots: Sequence[str],
    budget_s: float,
    peers: Sequence[str] = (),
    hints: Sequence[str] = (),
    gpu_argv: Optional[Sequence[str]] = None,
) -> Dict[str, Any]:
    """Look at the whole machine and return within ``budget_s`` plus a second. Reads only.

    ``roots``: directories whose file systems matter. ``peers``: ``host:port`` of other boxes. The parts and their shape
    are those of ``audit``, besides ``load hogs network kernel_log bystanders``; ``wall_s`` is this machine's clock.
    """
    inner_s = max(0.5, budget_s - 1.0)
    parts: List[Tuple[Tuple[str, ...], Callable[[Emit], None]]] = [
        (("machine",), audit.machine),
        (("cgroup", "cpu", "memory", "limits"), audit.resources),
        (("shm",), audit.shared_memory),
        (("gpu", "gpu_holders"), lambda emit: audit.gpu_parts(emit, inner_s, gpu_argv)),
        (("environment", "interpreters", "torch"), lambda emit: audit.software(emit, inner_s, hints)),
        (("load",), _load),
        (("hogs",), lambda emit: _hogs(emit, roots, min(8.0, inner_s * 0.6))),
        (("network",), lambda emit: _network(emit, peers, min(6.0, inner_s * 0.5))),
        (("kernel_log",), _kernel_log),
        (("bystanders",), _bystanders),
    ]
    for path in roots:
        parts.append((("disk:" + path,), partial(_disk, path=path)))
    start_s = boot_s()
    found = audit.gather(parts, budget_s)
    found["clock"] = {"value": {"wall_s": wall_s()}, "why_unknown": "", "took_s": round(boot_s() - start_s, 3)}
    return found


def _load(emit: Emit) -> None:
    from outlive.probes.load import load

    emit("load", load())


def _hogs(emit: Emit, roots: Sequence[str], budget_s: float) -> None:
    from outlive.probes.hogs import hogs

    emit("hogs", hogs(roots, budget_s))


def _network(emit: Emit, peers: Sequence[str], timeout_s: float) -> None:
    from outlive.probes.network import network

    emit("network", network(peers, timeout_s))


def _kernel_log(emit: Emit) -> None:
    from outlive.probes.kernel_log import kernel_log

    emit("kernel_log", kernel_log())


def _bystanders(emit: Emit) -> None:
    from outlive.probes.bystanders import bystanders

    emit("bystanders", bystanders())


def _disk(emit: Emit, path: str) -> None:
    import os

    from outlive.probes.disk import disk

    emit("disk:" + path, dict(disk(path).to_wire(), exists=os.path.isdir(os.path.expanduser(path))))
