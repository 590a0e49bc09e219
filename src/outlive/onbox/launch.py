"""The launcher: becomes the work.

Reads the payload from standard input, makes the work's environment, records the process identity
and replaces itself by the command, so that the process the keeper waits for is the work itself.
"""

import json
import os
import pkgutil
import shutil
import signal
import sys
from typing import Any, Dict, List

from outlive.probes.process import machine_identity, start_ticks
from outlive.wire.names import BoxFiles, RunFiles, write_aside

MARK_ENV = "OUTLIVE_ATTEMPT"


def box_of(run: RunFiles) -> BoxFiles:
    """Return the box that a run directory stands in: ``<root>/.outlive/runs/<run>``."""
    return BoxFiles(os.path.dirname(os.path.dirname(os.path.dirname(run.dir))))


def command_words(command: Any, python: str) -> List[str]:
    """Return argv for a stage's command: words exactly, a string through ``bash -c`` (else ``sh -c``).

    ``python`` or ``python3`` as first word is the interpreter that was found for this box.
    """
    if isinstance(command, str):
        shell = shutil.which("bash") or "/bin/sh"
        return [shell, "-c", command]
    words = list(command)
    if words[0] in ("python", "python3") and python:
        words[0] = python
    return words


def work_environment(
    box: Dict[str, Any],
    spec: Dict[str, Any],
    ours: Dict[str, str],
    secrets: Dict[str, str],
    named: str = "",
    train: str = "",
) -> Dict[str, str]:
    """Return the environment of the work: recorded at `up`, platform defaults, spec, ours, secrets.

    ``named`` is a directory where `python` is the chosen interpreter; it comes first on PATH. ``train`` is the archive
    that holds `outlive.checkpoints`; it comes last on PYTHONPATH. Nothing of the connection that started us and
    nothing of the client gets in.
    """
    env: Dict[str, str] = {}
    env.update(box.get("environment", {}))
    env.update(box.get("defaults", {}))
    env.update(ours)
    for key, value in spec["env"].items():
        env[key] = str(value).replace("{run}", ours["OUTLIVE_RUN"]).replace("{work}", ours["OUTLIVE_WORK"])
    env.update({k: v for k, v in ours.items() if k.startswith("OUTLIVE_")})
    env.update(secrets)
    python = spec.get("python") or ""
    if python:
        # a string command that says `python` must find the same interpreter as a list of words does
        first = [named] if named else []
        rest = env.get("PATH", "/usr/local/bin:/usr/bin:/bin")
        env["PATH"] = os.pathsep.join(first + [os.path.dirname(python), rest])
    env.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    env.setdefault("HOME", os.path.expanduser("~"))
    if train:
        env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], train] if env.get("PYTHONPATH") else [train])
    return env


def train_archive(box: BoxFiles) -> str:
    """Return the archive that came with this program, or "" where there is none (the program was not packed)."""
    try:
        raw = pkgutil.get_data("outlive.onbox", "train.json")
    except OSError:
        return ""
    path = box.train(json.loads((raw or b"{}").decode("ascii")).get("digest", ""))
    return path if os.path.exists(path) else ""


def our_environment(box_files: BoxFiles, run: RunFiles, attempt: Dict[str, Any], cap: int) -> Dict[str, str]:
    """Return the variables that we add for every work."""
    ours = {
        MARK_ENV: attempt["uuid"],
        "OUTLIVE_RUN": run.id,
        "OUTLIVE_STAGE": attempt["stage"],
        "OUTLIVE_ATTEMPT_NUMBER": str(attempt["attempt"]),
        "OUTLIVE_CONTROL_DIR": run.control,
        "OUTLIVE_WORK": run.work,
        "OUTLIVE_LEASES": run.leases,
        "PYTHONUNBUFFERED": "1",
        "PYTHONPYCACHEPREFIX": os.path.join(box_files.dir, "pycache"),
        "WANDB_RUN_ID": run.id,
        "WANDB_RESUME": "allow",
        "MLFLOW_RUN_NAME": run.id,
        "TRACKIO_RUN_ID": run.id,
    }
    if cap > 0:
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_MAX_THREADS"):
            ours[name] = str(cap)
    return ours


def grace_s(box: Dict[str, Any], spec: Dict[str, Any]) -> float:
    """Return the seconds between a first signal and the kill: the platform's, where it gives a warning, or our own.

    A platform that takes a box without a word sends no signal; what arrives there is ours.
    """
    own = float(spec["limits"]["grace_s"])
    platform = box.get("grace_s")
    return min(own, float(platform)) if platform else own


def reset_signals() -> None:
    """Give the work default handlers: what the keeper ignores must not be inherited."""
    for number in range(1, signal.NSIG):
        try:
            if signal.getsignal(number) in (signal.SIG_IGN, None):
                signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            continue  # KILL, STOP and numbers this system does not have
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def main(run_dir: str, number: int) -> int:
    """Become the work of attempt ``number``. Returns only when that was impossible (126 or 127)."""
    payload = json.loads(sys.stdin.readline() or "{}")
    run = RunFiles(run_dir)
    box_files = box_of(run)
    with open(run.spec, "rb") as handle:
        spec = json.loads(handle.read().decode("utf-8"))
    with open(os.path.join(run.attempt(number).dir, "attempt.json"), "rb") as handle:
        attempt = json.loads(handle.read().decode("utf-8"))
    try:
        with open(box_files.box, "rb") as handle:
            box = json.loads(handle.read().decode("utf-8"))
    except FileNotFoundError:
        box = {}
    stage = next(s for s in attempt["stages"] if s["name"] == attempt["stage"])
    ours = our_environment(box_files, run, attempt, int(box.get("thread_cap", 0)))
    python = spec.get("python") or ""
    named = box_files.interpreter_dir(python) if python else ""
    ours["OUTLIVE_GRACE_S"] = "%g" % grace_s(box, spec)
    env = work_environment(box, spec, ours, payload.get("secrets", {}), named, train_archive(box_files))
    words = command_words(stage["run"], python)
    os.setsid()
    reset_signals()
    os.umask(int(box.get("umask", 0o022)))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.chdir(run.work)
    with open(box_files.box_id, "r") as text:
        machine = machine_identity(text.read().strip())
    write_aside(
        run.attempt(number).work,
        json.dumps({"machine": machine, "pid": os.getpid(), "start_ticks": start_ticks(os.getpid())}).encode("ascii"),
    )
    try:
        os.execvpe(words[0], words, env)
    except FileNotFoundError:
        sys.stderr.write("outlive: no command %r on this box (PATH=%s)\n" % (words[0], env["PATH"]))
        return 127
    except OSError as error:
        sys.stderr.write("outlive: %r cannot be started: %s\n" % (words[0], error.strerror))
        return 126
