"""GPU readings once a second from one ``nvidia-smi`` that goes on running.

Starting the driver's tool for each reading costs more processor time than all else that watches a run, and its library
in our own process could hang us with a sick GPU. So the tool loops by itself and its lines are taken from a pipe when
somebody looks. Nothing here blocks; what a silent or ended tool means is for ``gpu.gpus`` to find out.
"""

import os
import signal
import subprocess
from typing import Any, Dict, List, Optional, Sequence

from outlive.probes.bounded import text
from outlive.probes.gpu import Gpu, GpuReading, all_fields, find_command, known_fields, query_words, reading_of
from outlive.wire.clock import boot_s

EVERY_S = 1.0
SILENT_S = 12.0
"""Without a line for so long the tool is taken for stuck."""
KEEP_BYTES = 1 << 18
"""Of lines that nobody asked for yet."""


class GpuFeed:
    """One looping tool. ``tick`` takes what it printed; ``reading`` says what that was since the last one."""

    def __init__(self, argv: Optional[Sequence[str]] = None, every_s: float = EVERY_S) -> None:
        self._argv = argv
        self._every_s = every_s
        self._asked = all_fields()
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._held = b""
        self._line_b = 0.0
        self._width = 0
        self.given = 0
        """Readings given so far: a tool that ends without any does not loop on this machine."""

    @property
    def pid(self) -> Optional[int]:
        return None if self._process is None else self._process.pid

    def start(self) -> bool:
        """Start the tool unless it runs. Returns whether it runs."""
        if self._process is not None:
            return True
        command = list(self._argv) if self._argv else find_command()
        if command is None:
            return False
        words = command + query_words(self._asked) + ["-lms", str(int(1000 * self._every_s))]
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
            )
        except OSError:
            return False
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._held, self._line_b = b"", boot_s()
        return True

    def tick(self) -> bool:
        """Take what was printed. False when the tool ended or fell silent: it was stopped then."""
        if self._process is None:
            return False
        self._take()
        ended = self._process.poll() is not None
        if ended:
            self._take()
            others = known_fields(self._asked, text(self._held[:4096]))
            self.stop()
            if others is not None:
                self._asked = others
                return self.start()
            return False
        if boot_s() > self._line_b + SILENT_S:
            self.stop()
            return False
        return True

    def reading(self) -> Optional[GpuReading]:
        """Return the newest whole reading, or None where there is none since the last call.

        ``utilisation_mean`` of each device is over all readings since then.
        """
        *lines, torn = self._held.split(b"\n")
        groups = _groups(lines)
        if len(groups) > 1:
            self._width = len(groups[-2])
        # the newest may still be printed; how many lines one has is known from the one before
        whole = groups if groups and self._width and len(groups[-1]) >= self._width else groups[:-1]
        if not whole:
            return None
        self._held = b"\n".join([line for group in groups[len(whole) :] for line in group] + [torn])
        self.given += 1
        found = reading_of(text(b"\n".join(whole[-1])), self._asked)
        means = _means(reading_of(text(b"\n".join(sum(whole, []))), self._asked).devices)
        devices = [Gpu(**dict(device.__dict__, utilisation_mean=means.get(device.index))) for device in found.devices]
        return GpuReading(found.state, tuple(devices), found.driver, None, found.why)

    def stop(self) -> None:
        """End the tool; one that is stuck in the kernel is left to it."""
        if self._process is None:
            return
        process, self._process = self._process, None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except OSError:
            pass
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            pass
        assert process.stdout is not None
        process.stdout.close()

    def _take(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        while True:
            try:
                data = os.read(self._process.stdout.fileno(), 65536)
            except BlockingIOError:
                return
            if not data:
                return
            self._line_b = boot_s()
            self._held = (self._held + data)[-KEEP_BYTES:]


def _groups(lines: Sequence[bytes]) -> List[List[bytes]]:
    """Return the lines by reading: one begins where the device's number does not grow."""
    groups: List[List[bytes]] = []
    before = -1
    for line in lines:
        word = line.partition(b",")[0].strip()
        number = int(word) if word.isdigit() else before + 1
        if not groups or number <= before:
            groups.append([])
        groups[-1].append(line)
        before = number
    return groups


def _means(devices: Sequence[Gpu]) -> Dict[int, Any]:
    seen: Dict[int, List[float]] = {}
    for device in devices:
        if device.utilisation is not None:
            seen.setdefault(device.index, []).append(device.utilisation)
    return {index: round(sum(values) / len(values), 4) for index, values in seen.items()}
