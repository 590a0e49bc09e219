"""Resource samples of a run: memory, CPU throttling, disk bytes and inodes, GPU."""

import json
import os
from typing import Any, Callable, Dict, List, Optional, Tuple

from outlive.onbox.children import Crew
from outlive.onbox.context import Context
from outlive.probes.cgroup import CgroupReading, cgroup
from outlive.probes.disk import disk
from outlive.probes.gpu_feed import GpuFeed
from outlive.probes.process import cpu_seconds, start_ticks
from outlive.wire.clock import boot_s, wall_s

CAP_BYTES = 8 << 20
FEED_TRIES = 2
"""A tool that ended so often without a reading does not loop on this machine: a child is asked now and then."""
LOOK_S = 60.0
"""How often all processes of the box are looked at for those of the work: that reads two files of each of them."""
DOUBT_S = 15.0
"""How often where the known ones use no CPU: a new one may."""


class Sampler:
    """Takes a sample every ``sample_s`` and writes it to ``samples.jsonl``.

    Whether there is a GPU, and what ails it, is found out by a child with a deadline: the driver's tools can hang on a
    sick one. While all is well, readings come from a tool that loops; a child is asked again when that ends.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.crew = Crew(1)
        self.next_b = 0.0
        self.next_gpu_b = 0.0
        self.gpu: Optional[Dict[str, Any]] = None
        self.feed = GpuFeed()
        self._feed_failed = 0
        self.last: Dict[str, Any] = {}
        self.last_cpu_s: Optional[float] = None
        self.cpu_advanced_b: Optional[float] = None
        self._looked_b = -LOOK_S
        self._known: List[Tuple[int, Optional[int]]] = []

    def new_attempt(self) -> None:
        """Forget the processes of the last attempt."""
        self._looked_b, self._known = -LOOK_S, []

    def tick(self, members: Optional[Callable[[], List[int]]]) -> Optional[Dict[str, Any]]:
        """Return a fresh sample when one was due. ``members`` finds the work's processes; None while there is none."""
        self.crew.tick()
        now = boot_s()
        if self.feed.pid is not None:
            self._keep_feed(now, members is not None)
        if now < self.next_b:
            return None
        self.next_b = now + float(self.context.limits["sample_s"])
        if self.feed.pid is not None:
            self._read_feed()
        elif now >= self.next_gpu_b:
            self.next_gpu_b = now + max(30.0, float(self.context.limits["sample_s"]))
            self.crew.add("gpu", "gpu", {}, 12.0, self._gpu_done)
        group = cgroup()
        space = disk(self.context.run.dir)
        cpu = self._cpu(now, members) if members is not None else None
        if self._advanced(cpu):
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
            "processes": len(self._known) if members is not None else 0,
        }
        if self.gpu is not None:
            sample["gpu"] = self.gpu
        self.last = sample
        self._write(sample)
        return sample

    def _advanced(self, cpu: Optional[float]) -> bool:
        return cpu is not None and (self.last_cpu_s is None or cpu > self.last_cpu_s + 0.05)

    def _cpu(self, now: float, members: Callable[[], List[int]]) -> Optional[float]:
        """Return the work's CPU seconds: of the processes known from the last look, while these use some.

        What a process used that began and ended between two looks is in the figure of its parent.
        """
        if now < self._looked_b + LOOK_S:
            self._known = [(pid, ticks) for pid, ticks in self._known if start_ticks(pid) == ticks]
            cpu = cpu_seconds(pid for pid, _ticks in self._known)
            if self._advanced(cpu) or now < self._looked_b + DOUBT_S:
                return cpu
        self._looked_b = now
        self._known = [(pid, start_ticks(pid)) for pid in members()]
        return cpu_seconds(pid for pid, _ticks in self._known)

    def _gpu_done(self, answer: Dict[str, Any]) -> None:
        self.gpu = answer if "error" not in answer else {"state": "unknown", "why": answer["error"]}
        if self.gpu.get("state") == "none":
            self.next_gpu_b = boot_s() + 600.0
        elif self.gpu.get("state") == "ok" and self._feed_failed < FEED_TRIES:
            self.feed.start()

    def _keep_feed(self, now: float, running: bool) -> None:
        if not running:
            self.feed.stop()
            return
        given = self.feed.given
        if not self.feed.tick():
            # what it means is for a child to find out, at once
            self._feed_failed = 0 if given else self._feed_failed + 1
            self.feed.given = 0
            self.next_gpu_b = now

    def _read_feed(self) -> None:
        reading = self.feed.reading()
        if reading is not None:
            self.gpu = dict(reading.to_wire(), cuda=(self.gpu or {}).get("cuda"))

    def pids(self) -> List[int]:
        """Return the pids of running children, which only their own Popen may collect."""
        return self.crew.pids() + ([] if self.feed.pid is None else [self.feed.pid])

    def stop(self) -> None:
        """End all children."""
        self.crew.kill()
        self.feed.stop()

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
