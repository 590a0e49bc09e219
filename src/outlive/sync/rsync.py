"""rsync as a carrier, where both ends have it and the way is ssh.

It is not believed: digests are compared afterwards.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable

from outlive import errors
from outlive.transport.agent import Agent
from outlive.transport.ssh import SshExec

PARTIAL_DIR = ".outlive-part-rsync"
_PROGRESS = re.compile(rb"^\s*([\d,.]+)\s+\d+%")
_CUT = frozenset((10, 12, 20, 23, 30, 35, 255))
"""rsync's own numbers for a lost connection, a protocol that broke off, a stall, a partial transfer."""
_SETTINGS = (
    "BatchMode=yes",
    "RequestTTY=no",
    "RemoteCommand=none",
    "ClearAllForwardings=yes",
    "ConnectTimeout=15",
    "ConnectionAttempts=1",
)


class CannotCarry(Exception):
    """rsync does not work here, for a reason that trying again does not change."""


def usable(agent: Agent) -> bool:
    """Return whether both ends have an rsync and the way between them is ssh."""
    if not isinstance(agent.exec, SshExec) or shutil.which("rsync") is None:
        return False
    return agent.exec.run(["sh", "-c", "command -v rsync >/dev/null"]).returncode == 0


def _shell(ssh: SshExec) -> tuple[str, str]:
    """Return (rsync's remote shell, host): ssh as it is called elsewhere, shared connection included."""
    *words, dashes, destination = ssh.argv_for_user(tty=False)
    assert dashes == "--"
    # ssh takes the first value it sees: ours stand before the user's words.
    words[1:1] = [word for setting in _SETTINGS for word in ("-o", setting)]
    return shlex.join(words), destination


def carry(
    agent: Agent,
    source_dir: str,
    paths: list[str],
    target_dir: str,
    on_bytes: Callable[[int], None],
    stall_s: float,
) -> None:
    """Send ``paths`` below ``source_dir`` to ``target_dir`` (absolute). What is half there is continued.

    Raises Unreachable when the connection was cut or stood still, CannotCarry when rsync is of no use here.
    """
    assert isinstance(agent.exec, SshExec)
    made = agent.exec.run(["mkdir", "-p", "--", target_dir])  # rsync makes one level only
    if made.returncode:
        raise CannotCarry(made.stderr.decode("utf-8", "replace").strip())
    shell, destination = _shell(agent.exec)
    argv = ["rsync", "-rltp", "--ignore-times", "-s", "--from0", "--files-from=-", f"--partial-dir={PARTIAL_DIR}"]
    argv += [f"--timeout={max(1, int(stall_s))}", "--info=progress2", "--no-inc-recursive", "-e", shell]
    argv += ["--", source_dir.rstrip("/") + "/", f"{destination}:{target_dir.rstrip('/')}/"]
    with tempfile.TemporaryFile() as names, tempfile.TemporaryFile() as said:
        names.write(b"".join(os.fsencode(path) + b"\0" for path in paths))
        names.seek(0)
        process = subprocess.Popen(argv, stdin=names, stdout=subprocess.PIPE, stderr=said, start_new_session=True)
        assert process.stdout
        try:
            pending = b""
            while data := os.read(process.stdout.fileno(), 4096):
                *lines, pending = re.split(rb"[\r\n]", pending + data)
                for line in lines:
                    if found := _PROGRESS.match(line):
                        on_bytes(int(re.sub(rb"\D", b"", found[1])))
            code = process.wait()
        finally:
            if process.poll() is None:
                process.terminate()  # it then keeps what arrived in its partial directory
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            process.stdout.close()
        said.seek(0)
        text = said.read().decode("utf-8", "replace").strip()
    if code == 0:
        return
    if code in _CUT and "is your shell clean" not in text and "command not found" not in text:
        last = text.splitlines()[-1] if text else f"rsync ended with {code}"
        raise errors.Unreachable(
            f"the copy to {agent.exec.describe()} was cut: {last}",
            place=agent.exec.describe(),
            safe="What arrived is kept; the same command continues there.",
        )
    raise CannotCarry(text or f"rsync ended with {code}")
