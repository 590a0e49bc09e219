"""Plays one real session on two boxes of the test bed and prints it as a terminal would show it.

    python testbed/session.py > docs/session.txt      (as root, on Linux; starts and ends the bed itself)

Nothing is edited: each command runs in a terminal of 96 columns, and what a person types is typed.
"""

import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-B0-2]|\x1b[=>]")
LIMIT_S = 120.0


def play(line: str, env: dict[str, str], cwd: Path, typed: dict[str, str] | None = None, terminal: bool = False) -> int:
    """Run one line, echo it as at a prompt, and answer what it asks. Returns its status."""
    print(f"$ {line}", flush=True)
    if not terminal:
        done = subprocess.run(
            line,
            shell=True,
            env=env,
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=LIMIT_S,
        )
        print(done.stdout.decode("utf-8", "replace").rstrip() + "\n", flush=True)
        return done.returncode
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execvpe("sh", ["sh", "-c", line], env)
    said, waiting, end = "", dict(typed or {}), time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        ready, _, _ = select.select([fd], [], [], 1.0)
        if not ready:
            continue
        try:
            data = os.read(fd, 65536)
        except OSError:
            break
        if not data:
            break
        said += data.decode("utf-8", "replace")
        for prompt, answer in list(waiting.items()):
            if prompt in said:
                os.write(fd, answer.encode() + b"\n")
                del waiting[prompt]
    _, status = os.waitpid(pid, 0)
    print(CONTROL.sub("", said).replace("\r\n", "\n").rstrip() + "\n", flush=True)
    return os.waitstatus_to_exitcode(status)


def main() -> int:
    bed = str(ROOT / "testbed" / "bed")
    with tempfile.TemporaryDirectory() as scratch:
        boxes = os.path.join(scratch, "boxes")
        env = {
            **os.environ,
            "OUTLIVE_HOME": os.path.join(scratch, "state"),
            "COLUMNS": "96",
            "NO_COLOR": "1",
            "TERM": "dumb",
            "OUTLIVE_TESTBED_BOXES": boxes,
            "OUTLIVE_SSH_CONFIG": os.path.join(boxes, "ssh_config"),
            "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
        }
        project = Path(scratch) / "resumable"
        subprocess.run(["cp", "-r", str(ROOT / "examples" / "resumable"), str(project)], check=True)
        subprocess.run([bed, "up"], env=env, check=True, stdout=subprocess.DEVNULL)
        try:
            play("outlive up alpha --price 1.20USD | head -n 12", env, project)
            play("outlive up beta | head -n 3", env, project)
            play("outlive run --on alpha", env, project)
            play("outlive run --on beta --name hot -- python train.py 0.03", env, project)
            time.sleep(8)
            print(
                "  ... the host of alpha restarts its container; the laptop is closed and opened again ...\n",
                flush=True,
            )
            subprocess.run([bed, "box", "restart", "alpha"], env=env, check=True, stdout=subprocess.DEVNULL)
            play("outlive ps", env, project)
            play("outlive watch tiny --until done --follow | tail -n 12", env, project)
            play("outlive pull tiny", env, project)
            play("outlive pull hot", env, project)
            play("outlive down beta --dry-run | head -n 12", env, project)
            play("outlive down alpha", env, project, {"to approve:": "alpha"}, terminal=True)
            play("outlive ps", env, project)
        finally:
            subprocess.run([bed, "down"], env=env, check=True, stdout=subprocess.DEVNULL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
