"""Resource samples of a run: memory, CPU throttling, disk bytes and inodes, GPU."""

import json
import os
from typing import Any, Dict, List, Optional

from outlive.onbox.children import Crew
from outlive.onbox.context import Context
from outlive.probes.cgroup import CgroupReading, cgroup
from outlive.probes.disk import disk
from outlive.probes.process import cpu_seconds
from outlive.wire.clock import boot_s, wall_s

CAP_BYTES = 8 << 20


class Sampler:
    """Takes a sample every ``sample_s`` and writes it to ``samples.jsonl``.

    GPU readings come from a child with a deadline: the driver's tools can hang on a sick GPU.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.crew = Crew(1)
        self.next_b = 0.0
        self.next_gpu_b = 0.0
        self.gpu: Optional[Dict[str, Any]] = None
        self.last: Dict[str, Any] = {}
        self.last_cpu_s: Optional[float] = None
        self.cpu_advanced_b: Optional[float] = None

    def tick(self, pids: List[int]) -> Optional[Dict[str, Any]]:
        """Return a fresh sample when one was due."""
        self.crew.tick()
        now = boot_s()
        if now < self.next_b:
            return None
        self.next_b = now + float(self.context.limits["sample_s"])
        if now >= self.next_gpu_b:
            self.next_gpu_b = now + max(30.0, float(self.context.limits["sample_s"]))
            self.crew.add("gpu", "gpu", {}, 12.0, self._gpu_done)
        group = cgroup()
        space = disk(self.context.run.dir)
        cpu = cpu_seconds(pids) if pids else None
        if cpu is not None and (self.last_cpu_s is None or cpu > self.last_cpu_s + 0.05):
            self.cpu_advanced_b = now
        self.last_cpu_s = cpu
        sample: Dict[str, Any] = {
            "b": round(now, 3),
            "w": round(wall_s(), 3),
            "memory_used_bytes": _working_set(group),
            "memory_limit_bytes": group.memory_limit_bytes,
            "oom_kill": group.oom_kill,
            "cpu_s": cpu,
            "throttled_s": group.throttled_s,
            "cpu_periods": group.periods,
            "cpu_throttled_periods": group.periods_throttled,
            "disk_path": space.mount,
            "disk_free_bytes": space.free_bytes,
            "disk_total_bytes": space.total_bytes,
            "disk_free_inodes": space.free_inodes,
            "disk_total_inodes": space.total_inodes,
            "processes": len(pids),
        }
        if self.gpu is not None:
            sample["gpu"] = self.gpu
        self.last = sample
        self._write(sample)
        return sample

    def _gpu_done(self, answer: Dict[str, Any]) -> None:
        self.gpu = answer if "error" not in answer else {"state": "unknown", "why": answer["error"]}
        if self.gpu.get("state") == "none":
            self.next_gpu_b = boot_s() + 600.0

    def _write(self, sample: Dict[str, Any]) -> None:
        path = self.context.run.samples
        try:
            if os.path.exists(path) and os.path.getsize(path) > CAP_BYTES:
                os.replace(path, path + ".1")
            with open(path, "ab", buffering=0) as handle:
                handle.write(json.dumps(sample, separators=(",", ":")).encode("ascii") + b"\n")
        except OSError:
            pass  # a sample is not worth the reserve; the alarm on the disk is raised from memory


def _working_set(group: CgroupReading) -> Optional[int]:
    """Return used memory without the file cache that the kernel drops before it kills anything."""
    if group.memory_used_bytes is None:
        return None
    return group.memory_used_bytes - (group.memory_reclaimable_bytes or 0)
