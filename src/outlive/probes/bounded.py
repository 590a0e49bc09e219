"""Run a foreign command with a hard deadline.

``nvidia-smi`` on a sick GPU, a login shell with a prompt in its start-up file and ``import torch`` on a
cold network disk share one habit: they may never return. The command gets its own session; at the
deadline its whole group is killed, and if the kernel will not let it die we stop waiting all the same.
"""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Dict, Optional, Sequence

from outlive.wire.clock import boot_s

if TYPE_CHECKING:
    import selectors
    import subprocess

LIMIT_BYTES = 4 * 1024 * 1024
"""Output beyond this ends the command: no probe has that much to say."""

_LOOK_S = 0.02
_REAP_S = 0.5


@dataclass(frozen=True)
class Bounded:
    """What a command said. ``rc`` is None exactly when it did not end by itself; ``why`` then says why."""

    rc: Optional[int]
    out: bytes
    err: bytes
    why: str = ""
    timed_out: bool = False


def run_bounded(
    argv: Sequence[str],
    timeout_s: float,
    environ: Optional[Dict[str, str]] = None,
    cwd: Optional[str] = None,
) -> Bounded:
    """Run ``argv`` with no input and return within ``timeout_s`` plus half a second, whatever it does.

    Returns as soon as the command itself has ended, even if something it left behind still holds its
    output open. A missing or unstartable program is an answer (``rc`` None), not an exception.
    """
    import selectors
    import subprocess

    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ,
            cwd=cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return Bounded(None, b"", b"", "cannot start %s: %s" % (argv[0] if argv else "nothing", error))

    end_s = boot_s() + timeout_s
    taken = {"out": b"", "err": b""}
    why, timed_out = "", False
    with selectors.DefaultSelector() as selector:
        for name, pipe in (("out", process.stdout), ("err", process.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ, name)
        while True:
            ended = process.poll() is not None
            _drain(selector, taken, 0.0 if ended else _LOOK_S)
            if ended:
                break
            if max(len(taken["out"]), len(taken["err"])) > LIMIT_BYTES:
                why = "wrote more than %d bytes" % LIMIT_BYTES
            elif boot_s() >= end_s:
                why, timed_out = "no answer within %g s" % timeout_s, True
            if why:
                _end(process)
                _drain(selector, taken, 0.0)
                break
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    return Bounded(None if why else process.returncode, taken["out"], taken["err"], why, timed_out)


def _drain(selector: "selectors.BaseSelector", taken: Dict[str, bytes], wait_s: float) -> None:
    """Take what is there now; wait at most ``wait_s`` for the first bytes."""
    if not selector.get_map():
        if wait_s:
            import time

            time.sleep(wait_s)
        return
    while True:
        ready = selector.select(wait_s)
        if not ready:
            return
        for key, _ in ready:
            try:
                data = os.read(key.fd, 65536)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if not data:
                selector.unregister(key.fileobj)
                continue
            taken[key.data] += data
        if not selector.get_map() or max(len(v) for v in taken.values()) > LIMIT_BYTES:
            return
        wait_s = 0.0


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill the command's group and reap it; give up on what is stuck inside the kernel."""
    import signal
    import subprocess

    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    try:
        process.wait(_REAP_S)
    except subprocess.TimeoutExpired:
        pass


def text(data: bytes) -> str:
    """Decode a foreign program's output; bytes that are not UTF-8 are kept visible, never an error."""
    return data.decode("utf-8", "backslashreplace")


def last_line(*parts: bytes) -> str:
    """Return the last non-empty line among ``parts``, for a reason string; at most 300 characters."""
    for part in reversed(parts):
        lines = [line.strip() for line in text(part).splitlines() if line.strip()]
        if lines:
            return lines[-1][:300]
    return ""
