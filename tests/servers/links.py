"""Bad connections for tests: a TCP link that fails (testbed/cutproxy.py) and a long line (testbed/wan.py)."""

from __future__ import annotations

import json
import os
import pathlib
import random
import select
import socket
import subprocess
import sys
import tempfile
import threading
from typing import Any

from servers.boxes import TESTBED, BedError


class _Program:
    """A test bed program with a unix datagram control socket; started when made, ended by `close`."""

    def __init__(self, script: str, words: list[str]) -> None:
        self._dir = pathlib.Path(tempfile.mkdtemp(prefix="outlive-link-"))
        self._control = str(self._dir / "ctl")
        before, after = words, []
        if "--" in words:
            split = words.index("--")
            before, after = words[:split], words[split + 1 :]
        with open(str(self._dir / "err"), "wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(TESTBED / script), *before, self._control, *after],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], 10)
        self.first_line = self._process.stdout.readline().decode() if ready else ""
        if not self.first_line:
            said = (self._dir / "err").read_text()
            self.close()
            raise BedError(f"{script} did not start: {said}")
        self._asker = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._asker.bind(str(self._dir / "ask"))
        self._asker.settimeout(10)
        self._lock = threading.Lock()

    def ask(self, text: str) -> str:
        with self._lock:
            self._asker.sendto(text.encode(), self._control)
            answer = self._asker.recv(4096).decode()
        if answer.startswith("error"):
            raise BedError(answer)
        return answer

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()
        if hasattr(self, "_asker"):
            self._asker.close()
        for path in self._dir.iterdir():
            path.unlink()
        self._dir.rmdir()


def _words(settings: dict[str, Any]) -> list[str]:
    return [f"{key}={int(value) if isinstance(value, bool) else value}" for key, value in settings.items()]


class CutLink(_Program):
    """A TCP link at `address`:`port`. Settings: words of testbed/cutproxy.py (`cut_down=1000`, `stall=1`)."""

    def __init__(self, target_address: str, target_port: int, **settings: Any) -> None:
        target = f"{target_address}:{target_port}"
        super().__init__("cutproxy.py", ["127.0.3.1:0", target, "--", *_words(settings)])
        _, self.address, port = self.first_line.split()
        self.port = int(port)

    def set(self, **settings: Any) -> None:
        """Change the link; when this returns, it is changed."""
        self.ask(" ".join(_words(settings)))

    def cut(self) -> None:
        """End all connections now."""
        self.ask("cut")

    def stats(self) -> dict[str, int]:
        """connections (ever), open, up and down (bytes that passed)."""
        return dict(json.loads(self.ask("stats")))


class Wan(_Program):
    """A line to a network namespace of its own: `netns`, reached at `far_ip` from here (`near_ip`).

    Put a box behind it with `box_factory(netns=wan.netns, address=wan.far_ip)`. Settings: the words of testbed/wan.py.
    """

    def __init__(self, **settings: Any) -> None:
        tag = f"{random.randrange(1 << 24):06x}"
        self.netns = "outlive-" + tag
        net = f"10.{random.randrange(200, 250)}.{random.randrange(1, 250)}"
        self.near_ip, self.far_ip = net + ".1", net + ".2"
        subprocess.run(["ip", "netns", "add", self.netns], check=True)
        try:
            subprocess.run(["ip", "-n", self.netns, "link", "set", "lo", "up"], check=True)
            ends = ["-", "oa" + tag, self.near_ip, self.netns, "ob" + tag, self.far_ip]
            super().__init__("wan.py", [*ends, "--", *_words(settings)])
        except BaseException:
            subprocess.run(["ip", "netns", "del", self.netns], check=True)
            raise

    def set(self, **settings: Any) -> None:
        """Change the line; when this returns, it is changed."""
        self.ask(" ".join(_words(settings)))

    def close(self) -> None:
        super().close()
        if os.path.exists("/run/netns/" + self.netns):
            subprocess.run(["ip", "netns", "del", self.netns], check=True)
