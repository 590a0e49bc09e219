"""One shared ssh connection per box: where its socket lies, how it is started, checked and ended.

The connection outlives the process that started it by PERSIST_S of idleness, so that a second command costs one round
trip. It is a cache: it may vanish at any time and nothing depends on it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from outlive.transport import mux

PERSIST_S = 300
PATH_MAX_BYTES = 84
"""A socket's path has 104 bytes on macOS, 108 on Linux; ssh adds 18 while it makes it."""

_NO_SHARING_S = 3600


class MasterFailed(Exception):
    """The shared connection did not come up. ``stderr`` holds ssh's words, ``late`` says that the time was up."""

    def __init__(self, stderr: str, late: bool = False) -> None:
        super().__init__(stderr)
        self.stderr, self.late = stderr, late


def directory() -> Path:
    """Return our directory for sockets, made 0700, in the runtime directory or /tmp.

    Raises PermissionError when somebody else owns the place.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    places = [Path(runtime) / "outlive"] if runtime and os.path.isdir(runtime) else []
    places.append(Path("/tmp") / f"outlive-{os.getuid()}")
    for place in places:
        if len(os.fsencode(place)) + 16 > PATH_MAX_BYTES:
            continue
        try:
            place.mkdir(mode=0o700, exist_ok=True)
            info = os.lstat(place)
        except OSError:
            continue
        # In /tmp anybody may have made it first; through a directory of theirs they would hold our logins.
        if stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and not info.st_mode & 0o077:
            return place
    raise PermissionError("no private directory for connection sockets: " + ", ".join(map(str, places)))


class Control:
    """The shared connection of one box. ``base`` are ssh's words up to and without the destination."""

    def __init__(self, base: Sequence[str], destination: str) -> None:
        self._base, self._destination = list(base), destination
        # `up` may accept a new key and later commands may not; that is no other connection.
        same = [word for word in base if not word.startswith("StrictHostKeyChecking=")]
        name = hashlib.sha256("\0".join([*same, destination]).encode("utf-8", "surrogateescape")).hexdigest()[:12]
        self.socket = directory() / name
        self._marker = self.socket.with_suffix(".off")

    def unwanted(self) -> bool:
        """Say whether this box was found, within the hour, not to bear shared connections."""
        try:
            info = self._marker.stat()
        except OSError:
            return False
        return info.st_size >= 2 and time.time() - info.st_mtime < _NO_SHARING_S

    def remember_unwanted(self, sure: bool = False) -> None:
        """Keep, for later processes too, that the box refused a command over a shared connection.

        The second time in a row counts, because a connection may just have died; the first if ``sure``.
        """
        with open(self._marker, "ab") as marker:
            marker.write(b"xx" if sure else b"x")

    def bears(self) -> None:
        """Forget refusals: a command went through."""
        self._marker.unlink(missing_ok=True)

    def alive(self) -> bool:
        """Say whether a local master answers. It may be stale: its far end is not asked."""
        if not self.socket.exists():
            return False
        try:
            return mux.alive(self.socket, 2.0)
        except mux.Unusable:
            return self._ask("check", 2.0)

    def start(self, deadline: float) -> None:
        """Make sure that a master runs; returns at once if one does. ``deadline`` is on ``time.monotonic``.

        Raises MasterFailed.
        """
        if self.alive():
            return
        with open(self.socket.with_suffix(".lock"), "w") as lock:
            # Two masters for one socket would leave one in the background for ever.
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise MasterFailed("", late=True) from None
                    time.sleep(0.02)
            if self.alive():
                return
            self.socket.unlink(missing_ok=True)
            argv = [*self._base, "-o", "ControlMaster=yes", "-o", f"ControlPath={self.socket}"]
            argv += ["-o", f"ControlPersist={PERSIST_S}", "-fN", "--", self._destination]
            import tempfile

            with tempfile.TemporaryFile() as words:
                # To a file: a master in the background keeps its stderr open, and a pipe would wait for it.
                null = subprocess.DEVNULL
                process = subprocess.Popen(argv, stdin=null, stdout=null, stderr=words, start_new_session=True)
                try:
                    returncode: int | None = process.wait(max(0.05, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    returncode = None
                finally:
                    if process.poll() is None:
                        process.kill()
                        process.wait()
                words.seek(0)
                text = words.read().decode("utf-8", "replace")
            if returncode != 0 or not self.socket.exists():
                raise MasterFailed(text, late=returncode is None)

    def retire(self) -> None:
        """Let the master take nothing new; what runs over it goes on. Bounded; never raises."""
        self._drop("stop")

    def stop(self) -> None:
        """End the master and all that runs over it. Bounded; never raises."""
        self._drop("exit")

    def _drop(self, verb: str) -> None:
        if self.socket.exists():
            self._ask(verb, 2.0)
            self.socket.unlink(missing_ok=True)

    def _ask(self, verb: str, timeout_s: float) -> bool:
        argv = ["ssh", "-F", "/dev/null", "-o", f"ControlPath={self.socket}", "-O", verb, "--", self._destination]
        null = subprocess.DEVNULL
        try:
            return subprocess.run(argv, stdin=null, stdout=null, stderr=null, timeout=timeout_s).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False
