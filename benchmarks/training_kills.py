"""Kill a training at random instants, again and again: it must end with the bytes of an undisturbed one.

    python benchmarks/training_kills.py [--kills 1000] [--seed 0] [--dir DIR] [--json]

Needs torch. A warmed-up parent forks each attempt, so that torch is imported once; the attempt saves every other step,
copies to a second directory and prunes, so most instants lie inside a save, an index write, a copy or a removal.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

try:
    import numpy
    import torch
except ImportError as error:
    print(f"not run: {error}; it needs: python -m pip install torch==2.13.0 numpy")
    raise SystemExit(0) from None  # `make bench` goes on with the others

from outlive.checkpoints.torch import Checkpointer, Keep, ResumableLoader
from outlive.checkpoints.torch import state as states
from outlive.checkpoints.torch.snapshot import map_tensors

STEPS = 16


class Numbers(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 20

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.rand(64) + i / 20 + random.random(), torch.tensor([float(i % 3)])


def train(home: Path) -> str:
    """Run the training in ``home`` to its end; return the digest of everything that a next step would depend on."""
    torch.manual_seed(3)
    random.seed(3)
    numpy.random.seed(3)
    # large enough that parameters are copied beside the next step
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 1100), torch.nn.BatchNorm1d(1100), torch.nn.Dropout(0.1), torch.nn.Linear(1100, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    loader = ResumableLoader(torch.utils.data.DataLoader(Numbers(), batch_size=4, shuffle=True), seed=5)
    seen: dict[str, list[float]] = {"sums": []}
    with Checkpointer(
        str(home / "ckpt"),
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        loader=loader,
        extra=seen,
        every_steps=2,
        keep=Keep(latest=2, best=1),
        durable=str(home / "durable"),
        durable_keep=Keep(latest=2, best=1),
        signals=(),
        load_every=3,
        say=lambda line: None,
    ) as ckpt:
        step = ckpt.resume()
        batches = loader.endless()
        while step < STEPS:
            x, y = next(batches)
            loss = (model(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            seen["sums"].append(round(x.sum().item(), 5))
            step += 1
            ckpt.maybe_save(step, metrics={"val_loss": loss.item()})
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader, "extra": seen}
    digest = hashlib.sha256()

    def add(where: str, tensor: torch.Tensor) -> str:
        digest.update(where.encode() + tensor.contiguous().numpy().tobytes())
        return where

    digest.update(repr(map_tensors(states.capture(parts), add)).encode())
    return digest.hexdigest()


def attempt(home: Path, kill_after_s: float | None) -> str:
    """Run the training in a child, killed after ``kill_after_s``. Returns its digest, or "" when it was killed."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setsid()
            (home / "digest").write_text(train(home))
            status = 0
        except BaseException:
            import traceback

            (home / "error").write_text(traceback.format_exc())
        finally:
            os._exit(status)
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        os.kill(pid, signal.SIGKILL)
    _pid, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return ""
    if (home / "error").exists():
        raise SystemExit(f"an attempt failed, its directory is {home}:\n{(home / 'error').read_text()}")
    return (home / "digest").read_text()


def place_of(home: Path) -> str:
    """Where the kill hit, as far as the directory tells. Raises for an index that cannot be read."""
    ckpt, durable = home / "ckpt", home / "durable"
    if not ckpt.exists():
        return "before the first save"
    names = os.listdir(ckpt)
    if any(n.startswith(".writing-") for n in names):
        return "in a save"
    if any(n.startswith(".removing-") for n in names):
        return "in a removal"
    if any(n.startswith(".checkpoints_index") for n in names):
        return "in an index write"
    if durable.exists() and any(n.startswith(".") for n in os.listdir(durable)):
        return "in a durable copy"
    index = ckpt / "checkpoints_index.json"
    if not index.exists():
        return "before the first save"
    listed = {e["name"] for e in json.loads(index.read_text())["checkpoints"]}
    there = {n for n in names if n.startswith("step-")}
    return "between steps" if listed == there else "between rename and index"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--dir", help="where to work; /dev/shm has no disk to wait for, so that more kills fit into an hour"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rng = random.Random(args.seed)
    base = Path(tempfile.mkdtemp(prefix="outlive-kills-", dir=args.dir))
    warm, whole = base / "warm", base / "whole"
    warm.mkdir()
    whole.mkdir()
    train(warm)  # what torch imports late, it imports here
    begun = time.monotonic()
    expected = attempt(whole, None)
    span_s = time.monotonic() - begun
    places: collections.Counter[str] = collections.Counter()
    kills = ended = wrong = leftovers = 0
    home = base / "0"
    home.mkdir()
    while kills < args.kills or (home / "ckpt").exists():
        digest = attempt(home, rng.uniform(0.0, span_s) if kills < args.kills else None)
        if digest == "":
            kills += 1
            places[place_of(home)] += 1
            continue
        ended += 1
        wrong += digest != expected
        known = ("step-", "checkpoints_index.json", "checkpoints.lock")
        leftovers += sum(not n.startswith(known) for n in os.listdir(home / "ckpt"))
        shutil.rmtree(home)
        home = base / str(ended)
        home.mkdir()
    shutil.rmtree(base)
    result = {
        "kills": kills,
        "trainings": ended,
        "wrong": wrong,
        "leftovers": leftovers,
        "places": dict(places.most_common()),
        "undisturbed_s": round(span_s, 3),
    }
    if args.json:
        print(json.dumps(result))
    else:
        print(f"{kills} kills in {ended} trainings of {STEPS} steps (undisturbed {span_s:.2f} s)")
        for place, count in places.most_common():
            print(f"  {count:5}  {place}")
        print(f"ended with other bytes: {wrong}   left over: {leftovers}   wanted: 0 and 0")
    raise SystemExit(1 if wrong or leftovers or not ended else 0)


if __name__ == "__main__":
    main()
