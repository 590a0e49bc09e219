"""The command line as a process, on a real box: this machine's own."""

from __future__ import annotations

import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import outlive as package

SRC = str(pathlib.Path(package.__file__).resolve().parent.parent)

TRAIN = """\
import json, os, sys, time
os.makedirs("out/ckpt", exist_ok=True)
last, pause = int(sys.argv[1]), float(sys.argv[2])
print("token", os.environ.get("MY_TOKEN", "none"), "\\x1b]0;title\\x07", flush=True)
for step in range(last + 1):
    print(f"step {step}/{last} loss={4 / (1 + step):.4f} lr=3e-4", flush=True)
    if step % 5 == 0:
        with open("out/ckpt/.aside", "w") as out:
            json.dump({"step": step}, out)
        os.replace("out/ckpt/.aside", f"out/ckpt/step-{step}.json")
    time.sleep(pause)
"""

TOML = """\
[job]
name = "{name}"
run = "python train.py {last} {pause}"
[artifacts]
checkpoints = "out/ckpt"
[watch]
scan = "0.3s"
sample = "0.5s"
grace = "2s"
"""


class Shell:
    """A person's shell: a home of its own and a project; commands are processes."""

    def __init__(self, base: pathlib.Path) -> None:
        self.home, self.project = base / "home", base / "my project 模型"
        self.project.mkdir(parents=True)
        (self.project / "train.py").write_text(TRAIN)
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("OUTLIVE_", "COLUMNS", "NO_COLOR"))}
        self.env = {**keep, "OUTLIVE_HOME": str(self.home), "PYTHONPATH": SRC, "XDG_CONFIG_HOME": str(base / "config")}

    def job(self, name: str, last: int, pause: float) -> None:
        (self.project / "outlive.toml").write_text(TOML.format(name=name, last=last, pause=pause))

    def outlive(self, *words: str, env: dict[str, str] | None = None, cwd: pathlib.Path | None = None):
        return subprocess.run(
            [sys.executable, "-m", "outlive", *words],
            env={**self.env, **(env or {})},
            cwd=cwd or self.project,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )

    def data(self, *words: str, code: int = 0):
        done = self.outlive(*words, "--json")
        assert done.returncode == code, (words, done.stdout, done.stderr)
        said = json.loads(done.stdout)
        if said["schema"] != "outlive/error/1":
            assert said["schema"] == f"outlive/{words[0] if words else 'overview'}/1"
        return said

    def state_of(self, run: str) -> str:
        (found,) = [r for b in self.data("ps")["boxes"] for r in b["runs"] if r["run"] == run]
        return str(found["state"])


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    made = Shell(tmp_path_factory.mktemp("cli"))
    said = made.data("up", "local:")
    assert said["new"] and said["box"]["name"] == "local-1" and said["first_contact"]
    yield made
    for box in made.data("ps")["boxes"]:
        for run in box["runs"]:
            if not run["ended"]:
                made.outlive("stop", run["run"], "--grace", "1s")


@pytest.fixture(scope="module")
def done(shell: Shell) -> str:
    """A run that has succeeded; its name."""
    shell.job("short", 10, 0.02)
    ran = shell.outlive("run", "--wait")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "kept" in ran.stderr and "succeeded" in ran.stdout
    return str(re.search(r"short-\d{6}-[a-z]{4}", ran.stdout)[0])  # type: ignore[index]


@pytest.fixture
def live(shell: Shell) -> Iterator[str]:
    """A run that goes on; its name."""
    shell.job("long", 10_000, 0.1)
    name = shell.data("run")["run"]
    yield name
    shell.outlive("stop", name, "--grace", "1s")


def test_up_again_is_no_error_and_says_that_nothing_changed(shell: Shell) -> None:
    said = shell.data("up", "local-1")
    assert said["new"] is False and said["changes"] == [] and said["first_contact"] == []
    assert isinstance(said["audit"]["environment"]["value"]["kept"], list)  # names, no values
    assert "nothing changed" in shell.outlive("up", ".").stdout


def test_the_same_job_twice_is_one_run(shell: Shell, done: str) -> None:
    shell.job("short", 10, 0.02)
    again = shell.data("run")
    assert (again["run"], again["how"]) == (done, "finished")


def test_json_of_every_reading_verb(shell: Shell, done: str, tmp_path: pathlib.Path) -> None:
    assert shell.data("ps")["boxes"][0]["current"] is True
    assert shell.data("ps", "--no-network")["boxes"][0]["current"] is False
    watched = shell.data("watch", done)
    assert watched["state"] == "succeeded" and watched["checkpoint"]["step"] == 10
    lines = shell.data("logs", done, "--tail", "3")["untrusted"]["lines"]
    assert len(lines) == 3 and lines[-1].startswith("step 10/10")
    pulled = shell.data("pull", done, "--to", str(tmp_path / "got"))
    assert pulled["delivery"] == "proved" and pulled["files"]
    assert shell.data("down", "local-1", "--dry-run")["exit_code"] == 0
    assert shell.data("approve")["requests"] == []
    assert shell.data("adopt", "local-1")["runs"]
    assert shell.data("push")["snapshot"]
    assert shell.data()["schema"] == "outlive/overview/1"


def test_data_is_pushed_and_compared(shell: Shell, tmp_path: pathlib.Path) -> None:
    source = tmp_path / "数据 set"
    source.mkdir()
    (source / "a.bin").write_bytes(b"x" * 5000)
    target = tmp_path / "there"
    sent = shell.data("push", "--data", f"{source}:{target}")["data"][0]
    assert sent["files"] == 1 and (target / "a.bin").read_bytes() == b"x" * 5000
    assert shell.data("push", "--data", f"{source}:{target}")["data"][0]["sent_bytes"] == 0


def test_what_is_not_here_says_why(shell: Shell) -> None:
    for words in (["ssh"], ["tunnel", "6006"]):
        said = shell.data(*words, code=4)
        assert said["error"] == "box-lacks" and "not here, because local-1 is this machine" in said["what"]


def test_only_a_person_forgets_a_box(shell: Shell) -> None:
    assert shell.data("forget", "local-1", code=5)["error"] == "approval-needed"
    assert shell.data("ps")["boxes"]


def test_a_command_that_is_not_there_is_said_at_once(shell: Shell) -> None:
    (shell.project / "outlive.toml").unlink(missing_ok=True)
    done = shell.outlive("run", "--name", "typo", "--no-push", "--", "trian-it")
    assert done.returncode == 1 and "127" in done.stdout


def test_a_missing_interpreter_changes_nothing(shell: Shell) -> None:
    said = shell.data("up", "local-1", "--python", "/no/python3", code=4)
    assert said["error"] == "box-lacks" and said["safe"] == "Nothing was changed." and said["why"]


def test_another_job_of_the_same_name_is_refused_while_one_lives(shell: Shell, live: str) -> None:
    shell.job("long", 7, 0.1)
    said = shell.data("run", code=3)
    assert said["error"] == "spec-differs" and said["why"] and said["safe"] == "The run goes on unchanged."
    assert shell.data("down", "local-1", "--dry-run", code=3)["why"]


def test_a_secret_is_redacted_and_controls_are_seen(shell: Shell) -> None:
    (shell.project / "outlive.toml").unlink(missing_ok=True)
    env = {"MY_TOKEN": "sk-very-secret-value"}
    ran = shell.outlive(
        "run", "--name", "secret", "--secret", "MY_TOKEN", "--wait", "--", "python", "train.py", "1", "0", env=env
    )
    assert ran.returncode == 0 and "sk-very" not in ran.stdout + ran.stderr
    shell.job("secret", 1, 0)
    with (shell.project / "outlive.toml").open("a") as toml:
        toml.write('[secrets]\nMY_TOKEN = "env:MY_TOKEN"\n')
    shown = shell.outlive("logs", "secret", env=env)
    assert shown.returncode == 0 and "token [redacted]" in shown.stdout
    assert "\x1b" not in shown.stdout and "\x07" not in shown.stdout
    raw = shell.outlive("logs", "secret", "--raw", env=env)
    assert "\x1b]0;title\x07" in raw.stdout


def test_the_jobs_own_status_is_passed_through(shell: Shell) -> None:
    (shell.project / "outlive.toml").unlink(missing_ok=True)
    ran = shell.outlive("run", "--name", "three", "--wait", "--exit-status", "--", "sh", "-c", "exit 3")
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert shell.outlive("watch", "three").returncode == 1


def test_watching_without_a_terminal_is_one_look_and_ends_with_7_while_it_runs(shell: Shell, live: str) -> None:
    look = shell.outlive("watch", live)
    assert look.returncode == 7 and live in look.stdout
    assert shell.outlive("watch", live, "--until", "step=2", "--timeout", "60s").returncode == 0
    over = shell.outlive("watch", live, "--until", "done", "--timeout", "1s", "--json")
    assert over.returncode == 7
    lines = [json.loads(line) for line in over.stdout.splitlines()]
    assert lines[-1]["error"] == "time-over" and lines[0]["schema"] == "outlive/watch/1"


def test_ctrl_c_leaves_the_run_alone(shell: Shell, live: str) -> None:
    watcher = subprocess.Popen(
        [sys.executable, "-m", "outlive", "watch", live, "--follow"],
        env=shell.env,
        cwd=shell.project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watcher.stdout is not None and watcher.stdout.readline()
    watcher.send_signal(signal.SIGINT)
    _, err = watcher.communicate(timeout=30)
    assert watcher.returncode == 130 and "The run goes on." in err
    assert shell.state_of(live) == "running"


def test_a_reader_that_leaves_early(shell: Shell, live: str) -> None:
    done = subprocess.run(
        f"{sys.executable} -m outlive logs {live} --follow | head -n 2; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        env=shell.env,
        cwd=shell.project,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and done.stderr == "" and len(done.stdout.splitlines()) == 2


def test_a_terminal_gets_a_display_that_fits_and_ctrl_c_gives_it_back(shell: Shell, live: str) -> None:
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(shell.project)
        env = {**shell.env, "TERM": "xterm", "COLUMNS": "40", "LINES": "12", "LANG": "C.UTF-8"}
        os.execvpe(sys.executable, [sys.executable, "-m", "outlive", "watch", live], env)
    seen, asked = b"", False
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if select.select([fd], [], [], 0.5)[0]:
            try:
                seen += os.read(fd, 65536)
            except OSError:
                break
        if b"goes on" in seen and b"step" in seen and not asked:
            asked = True
            os.write(fd, b"\x03")
    status = os.waitpid(pid, 0)[1]
    text = seen.decode("utf-8", "replace")
    assert os.waitstatus_to_exitcode(status) == 130, text[-2000:]
    assert "The run goes on." in text and text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")  # the cursor is back
    for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n").splitlines():
        assert len(line) <= 40 or "outlive:" in line or "safe:" in line
    assert shell.state_of(live) == "running"


def test_stop_waits_for_the_end_and_twice_is_once(shell: Shell, live: str) -> None:
    said = shell.data("stop", live, "--grace", "2s")
    assert said["ended"] and said["state"] == "stopped"
    assert shell.data("stop", live)["state"] == "stopped"


def test_a_lease_is_extended_and_without_one_that_is_refused(shell: Shell, live: str) -> None:
    assert "no lease" in shell.data("extend", live, "1h", code=3)["what"]
    shell.outlive("stop", live, "--grace", "1s")
    shell.job("leased", 10_000, 0.1)
    run = shell.data("run", "--max-hours", "1")["run"]
    said = shell.data("extend", run, "--to", "2h")
    assert said["answered"] and said["status"]["lease_max_s"] == 7200
    shell.outlive("stop", run, "--grace", "1s")


def test_no_colour_in_a_pipe_and_narrow_screens(shell: Shell, done: str) -> None:
    for words in ([], ["ps"], ["watch", done], ["up", "local-1"]):
        said = shell.outlive(*words, env={"COLUMNS": "40"})
        assert "\x1b" not in said.stdout + said.stderr
        for line in said.stdout.splitlines():  # what is to be copied is never folded
            assert len(line) <= 40 or " " not in line.strip() or line.startswith("next: "), line


def test_a_client_without_memory_takes_over(shell: Shell, done: str, tmp_path: pathlib.Path) -> None:
    address = shell.data("ps")["boxes"][0]["address"]
    other = Shell(tmp_path)
    shutil.rmtree(other.home, ignore_errors=True)
    said = other.data("adopt", address)
    assert done in [run["run"] for run in said["runs"]]
    assert other.outlive("watch", done).returncode == 0
