"""Generated projects through the verbs: four phases, killed in the third, resumed there, brought home, equal."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from servers import ran
from servers.clients import QUICK

from outlive.runs import job as jobs
from outlive.runs.home import Home
from outlive.runs.pull import pull
from outlive.runs.run import run
from outlive.runs.up import up
from outlive.scaffold import project

pytestmark = [pytest.mark.torch, pytest.mark.slow]
KINDS = sorted(project.KINDS)
SOURCE = Path(__file__).parents[2] / "src"
PHASES = """
phases:
  - {name: broad, data: {data/broad.txt: 0.8, data/curated.txt: 0.2}, steps: 6, lr: {peak: 1.0e-3, warmup_steps: 2}}
  - {name: curated, data: data/curated.txt, steps: 4, lr: {peak: 6.0e-4, end: 3.0e-4}}
  - {name: domain, data: data/domain.txt, steps: 60, lr: {peak: 5.0e-4, end: 1.0e-4}}
  - {name: cooldown, data: data/domain.txt, steps: 3, lr: {shape: linear, peak: 1.0e-4, end: 1.0e-5}}
"""
SMALL = {
    "nanogpt": "model: {block_size: 32, n_layer: 1, n_head: 2, n_embd: 32}\n",
    "litgpt": "model: {block_size: 32, overrides: {n_layer: 1, n_head: 2, n_embd: 32, intermediate_size: 64, "
    "vocab_size: 256, padded_vocab_size: 256}}\n",
    "hf-trainer": "model: {block_size: 32, config: {model_type: gpt2, n_layer: 1, n_head: 2, n_embd: 32, "
    "vocab_size: 256, n_positions: 64}}\n",
}
REST = """
train: {global_batch: 4, micro_batch: 2}
data: {eval_every: 25, eval_batches: 1}
checkpoint: {every_steps: 10}
log: {every: 1, name: t}
"""


def small(kind: str, directory: Path) -> Path:
    """Return a project of the kind whose training takes seconds."""
    project.write(kind, directory, "t")
    (directory / "training_config.yaml").write_text(SMALL[kind] + REST + PHASES)
    return directory


ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
"""With two, MKL chooses by the machine's load how many it uses, and the last bit of a sum follows."""


def environment() -> dict[str, str]:
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": str(SOURCE), "PYTHON": sys.executable}


def train(directory: Path, *words: str, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "train.py", *words],
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def rows(out: Path, event: str) -> list[dict[str, Any]]:
    try:
        lines = (out / "metrics.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue  # a line that the kill cut short
    return [row for row in found if row["event"] == event]


def digests(out: Path) -> dict[str, str]:
    """Digest of each weights file of the newest checkpoint."""
    newest = max((path for path in (out / "ckpt").glob("step-*")), key=lambda path: path.name)
    files = [path for path in newest.rglob("*") if path.suffix == ".safetensors"]
    assert files, f"no weights in {newest}: {[str(path) for path in newest.rglob('*')]}"
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def poll(what: str, test: Callable[[], Any], limit_s: float = 240.0) -> Any:
    end = time.monotonic() + limit_s
    while True:
        found = test()
        if found:
            return found
        assert time.monotonic() < end, f"not within {limit_s} s: {what}"
        time.sleep(0.02)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Any]:
    place = up(Home(tmp_path / "state"), ["local:" + str(tmp_path / "box")], python=sys.executable).place
    yield place
    place.close()


@pytest.mark.parametrize("kind", KINDS)
def test_killed_in_phase_three_resumed_there_brought_home_and_equal(kind: str, tmp_path: Path, box: Any) -> None:
    folder = small(kind, tmp_path / "project")
    undisturbed = tmp_path / "undisturbed"
    shutil.copytree(folder, undisturbed)
    train(undisturbed)
    job = jobs.read(folder / "outlive.toml")
    job = replace(
        job, setup_run="", setup_inputs=(), smoke="", env=ONE_THREAD, limits=QUICK, retry_wait_s=0.2, durable_to="none"
    )
    started = run(box.home, job, box)
    work = ran.work_of(box, started.run)

    def in_third() -> list[int]:
        committed = [int(path.parent.name[5:]) for path in (work / "out" / "ckpt").glob("step-*/checkpoint.json")]
        return pids(work) if any(10 < step < 70 for step in committed) else []

    for pid in poll("a checkpoint in phase three", in_third):
        os.kill(pid, signal.SIGKILL)
    status = ran.until(box, started.run, lambda s: s["ended"] and not s["supervised"], limit_s=300)
    log = (work.parent / "log").read_text("utf-8", "replace")
    assert status["state"] == "succeeded", log
    assert status["attempt"] >= 2
    resumed = rows(work / "out", "resume")
    assert resumed and 10 < resumed[0]["step"] < 70, "it went on in phase three"
    assert [row["phase"] for row in rows(work / "out", "phase")][-2:] == ["domain", "cooldown"]
    result = pull(box.home, started.run, to=tmp_path / "home")
    assert (result.delivery, result.exit_code) == ("proved", 0)
    last = {row["step"]: row["loss"] for row in rows(result.dir / "out", "train")}
    assert last == {row["step"]: row["loss"] for row in rows(undisturbed / "out", "train")}, (
        "the same losses at each step"
    )
    assert digests(result.dir / "out") == digests(undisturbed / "out")
    for name in ("training_status.md", "ckpt/checkpoints_index.json"):
        assert (result.dir / "out" / name).exists()
    assert "status: finished" in (result.dir / "out" / "training_status.md").read_text("utf-8")


def pids(work: Path) -> list[int]:
    """Processes that run train.py in this work directory."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"train.py" in (entry / "cmdline").read_bytes():
                if os.readlink(entry / "cwd") == str(work.resolve()):
                    found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_smoke_and_bad_input(kind: str, tmp_path: Path) -> None:
    folder = small(kind, tmp_path / "项目")
    said = train(folder, "--limit-batches", "2")
    assert "step 2/73" in said
    config = folder / "training_config.yaml"
    good = config.read_text()
    config.write_text(good.replace("micro_batch", "micro_bacth"))
    assert "did you mean `micro_batch`" in train(folder, status=1)
    config.write_text(good.replace("n_embd: 32", "n_embd: 64"))
    said = train(folder, status=1)
    assert "train.py: " in said and "Traceback" not in said, "a checkpoint of another model is refused in words"
    config.write_text(good)
    (folder / "data" / "broad.txt").write_text("")
    assert "0 tokens" in train(folder, status=1)


def test_a_loss_that_is_no_number_stops_and_going_back_is_one_recorded_step(tmp_path: Path) -> None:
    folder = small("nanogpt", tmp_path / "p")
    train(folder, "--limit-batches", "12", "--set", "checkpoint.every_steps=4")
    said = train(folder, "--set", "train.grad_clip=1e30", "--set", "guard.factor=0.01", "--set", "guard.patience=3",
                 "--allow-change", "train.grad_clip", status=3)  # fmt: skip
    proposal = json.loads((folder / "out" / "divergence.json").read_text())
    assert proposal["resume_step"] == 12 and proposal["command"] in said
    train(folder, *proposal["command"].split()[2:], "--limit-batches", "1")
    done = json.loads((folder / "out" / "interventions.json").read_text())
    assert [(one["step"], one["skip_steps"]) for one in done] == [(12, proposal["step"] - 12)]


def test_a_phase_that_misses_its_criterion_ends_the_run(tmp_path: Path) -> None:
    folder = small("nanogpt", tmp_path / "p")
    config = folder / "training_config.yaml"
    config.write_text(
        config.read_text().replace("warmup_steps: 2}}", "warmup_steps: 2}, success: {val_loss_below: 0.01}}")
    )
    said = train(folder, status=3)
    assert "phase broad ended at step 6, but val_loss_below 0.01 is not met" in said
    assert max(row["step"] for row in rows(folder / "out", "train")) == 6, "the next phase did not begin"
    assert "but val_loss_below 0.01 is not met" in (folder / "out" / "training_status.md").read_text("utf-8")


def test_gradients_are_clipped_and_the_same_seed_gives_the_same_losses(tmp_path: Path) -> None:
    losses = []
    for name in ("a", "b"):
        folder = small("nanogpt", tmp_path / name)
        train(folder, "--limit-batches", "4", "--set", "train.grad_clip=0.001")
        losses.append([row["loss"] for row in rows(folder / "out", "train")])
    assert losses[0] == losses[1] and len(losses[0]) == 4
    free = small("nanogpt", tmp_path / "c")
    train(free, "--limit-batches", "4")
    assert losses[0] != [row["loss"] for row in rows(free / "out", "train")], "clipping changed nothing"


LOOP = """\
import os, signal, torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
for step in range(60):
    x = torch.randn(8, 4)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    loss.backward()
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    print("step", step + 1, "loss", float(loss), flush=True)
    if step + 1 == int(os.environ.get("DIE_AT", "0")):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_patched_loop_is_killed_and_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    from outlive.scaffold.adapt import propose

    (tmp_path / "loop.py").write_text(LOOP)
    patch = propose(tmp_path / "loop.py")["patch"]
    subprocess.run(["git", "apply", "-p1", "-"], input=patch, text=True, cwd=tmp_path, check=True)
    script = (tmp_path / "loop.py").read_text()
    (tmp_path / "loop.py").write_text(
        script.replace('"out/ckpt", ', '"out/ckpt", every_steps=10, ')
    )  # auto begins at 60 s

    def play(where: str, **more: str) -> tuple[int, list[str]]:
        home = tmp_path / where
        home.mkdir(exist_ok=True)
        done = subprocess.run(
            [sys.executable, str(tmp_path / "loop.py")],
            cwd=home,
            env={**environment(), **more},
            capture_output=True,
            text=True,
            timeout=300,
        )
        return done.returncode, [line for line in done.stdout.splitlines() if line.startswith("step")]

    status, undisturbed = play("undisturbed")
    assert status == 0 and len(undisturbed) == 60
    status, before = play("killed", DIE_AT="40")
    assert status == -signal.SIGKILL and len(before) == 40
    status, after = play("killed")
    assert status == 0
    first = int(after[0].split()[1])
    assert 1 < first <= 41, "it went on, and not from zero"
    assert after == undisturbed[first - 1 :]
