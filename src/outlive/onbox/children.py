"""Short-lived children of the supervisor: digests, copies, notices, scans.

A child is this same program (``child NAME``), gets one JSON object on standard input and prints one
on standard output. It runs at low priority, in its own session, and is killed at its deadline. So a
library, a codec or a sick file system can only take a child down, never the supervisor.
"""

import json
import os
import signal
import subprocess
import tempfile
from typing import IO, Any, Callable, Dict, List, Optional

from outlive.onbox.context import program
from outlive.wire.clock import boot_s


class Child:
    """One running child. ``poll`` never blocks."""

    def __init__(self, name: str, request: Dict[str, Any], deadline_s: float) -> None:
        self.name = name
        self.deadline_b = boot_s() + deadline_s
        # answers go to an unnamed file: a pipe that nobody reads could block the child for ever
        self._out = _scratch()
        self._process = subprocess.Popen(
            program() + ["child", name],
            stdin=subprocess.PIPE,
            stdout=self._out,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode("utf-8"))
        except BrokenPipeError:
            pass  # it died at once; poll() says so
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> Optional[Dict[str, Any]]:
        """Return the answer when the child has ended, else None.

        A child that died or ran over its deadline answers ``{"error": sentence}``.
        """
        code = self._process.poll()
        if code is None:
            if boot_s() < self.deadline_b:
                return None
            self.kill()
            return {"error": "%s took longer than its limit and was ended" % self.name}
        self._out.seek(0)
        raw = self._out.read()
        self._out.close()
        try:
            answer = json.loads(raw.decode("utf-8"))
        except ValueError:
            return {"error": "%s ended with status %d and no answer" % (self.name, code)}
        return answer if isinstance(answer, dict) else {"error": "%s answered nonsense" % self.name}

    def kill(self) -> None:
        """End the child and everything it started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            pass  # in the kernel's hands, as on a sick GPU; it is collected when it comes back


class Crew:
    """At most ``size`` children at a time, in order; answers go to the callback given with the task."""

    def __init__(self, size: int = 1) -> None:
        self.size = size
        self._waiting: List[Any] = []
        self._running: List[Any] = []
        self._keys: Dict[str, bool] = {}

    def add(
        self, key: str, name: str, request: Dict[str, Any], deadline_s: float, done: Callable[[Dict[str, Any]], None]
    ) -> bool:
        """Queue a task unless one with this key is queued or running. Returns whether it was queued."""
        if key in self._keys:
            return False
        self._keys[key] = True
        self._waiting.append((key, name, request, deadline_s, done))
        return True

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._running

    def has(self, prefix: str) -> bool:
        """Return whether a task whose key starts with ``prefix`` is queued or running."""
        return any(k.startswith(prefix) for k in self._keys)

    def tick(self) -> None:
        """Collect answers and start what waits."""
        for item in list(self._running):
            key, child, done = item
            answer = child.poll()
            if answer is not None:
                self._running.remove(item)
                del self._keys[key]
                done(answer)
        while self._waiting and len(self._running) < self.size:
            key, name, request, deadline_s, done = self._waiting.pop(0)
            try:
                child = Child(name, request, deadline_s)
            except OSError as error:
                del self._keys[key]
                done({"error": "%s could not be started: %s" % (name, error.strerror)})
                continue
            self._running.append((key, child, done))

    def pids(self) -> List[int]:
        """Return the pids of running children, which only their own Popen may collect."""
        return [child.pid for _key, child, _done in self._running]

    def kill(self) -> None:
        for _key, child, _done in self._running:
            child.kill()
        self._running, self._waiting, self._keys = [], [], {}


def _scratch() -> IO[bytes]:
    """Return an unnamed file for a child's answer: in memory where the system can, or it would fail on a full disk.

    Not in /dev/shm: that is the work's, often 64 MB in all, and full when its loaders are.
    """
    if hasattr(os, "memfd_create"):
        try:
            return os.fdopen(os.memfd_create("outlive-answer"), "w+b")
        except OSError:
            pass  # a kernel that has not heard of it
    return tempfile.TemporaryFile()
