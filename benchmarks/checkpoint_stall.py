"""What a save costs a training: how long it stands still, when the bytes are safe, how much memory it takes.

    python benchmarks/checkpoint_stall.py [--million 250] [--rounds 3] [--dir DIR] [--plot PNG] [--json FILE]

Needs torch. Every figure is taken in one process on one machine, the ways taking turns, and given as a ratio to
``torch.save`` of the same state: a model with AdamW in float32, so three tensors for each parameter. The training step
between two saves has a forward and a backward pass over all parameters, as a real one has; its slowing down by a save
beside it is reported too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

try:
    import torch
except ImportError as error:
    print(f"not run: {error}; it needs: python -m pip install torch==2.13.0")
    raise SystemExit(0) from None  # `make bench` goes on with the others

from outlive.checkpoints.torch import Checkpointer, Keep

WANTED = {
    "stall / torch.save": 0.1,
    "stall / dcp.async_save": 0.7,
    "durable / torch.save+fsync": 1.15,
}


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Peak:
    """The most resident memory above that at the beginning, looked at every few milliseconds."""

    def __enter__(self) -> Peak:
        self.begun, self.most, self.over = resident_bytes(), 0, threading.Event()
        self.thread = threading.Thread(target=self._look)
        self.thread.start()
        return self

    def _look(self) -> None:
        while not self.over.wait(0.005):
            self.most = max(self.most, resident_bytes() - self.begun)

    def __exit__(self, *_error: object) -> None:
        self.over.set()
        self.thread.join()


class Job:
    def __init__(self, million: int) -> None:
        torch.manual_seed(0)
        width = 2048
        layers = max(1, million * 1_000_000 // (width * width))
        self.model = torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False) for _ in range(layers)])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, foreach=False)
        self.batch = torch.randn(8, width)
        for _ in range(2):
            self.step()

    def step(self) -> float:
        begun = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=False)
        self.model(self.batch).square().mean().backward()
        self.optimizer.step()
        return time.perf_counter() - begun

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def bytes(self) -> int:
        moments = self.optimizer.state_dict()["state"].values()
        tensors = list(self.model.state_dict().values()) + [t for one in moments for t in one.values()]
        return sum(t.numel() * t.element_size() for t in tensors)


def timed(act: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def sync(path: Path) -> None:
    for one in [path, *path.rglob("*")]:
        fd = os.open(one, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--million", type=int, default=250, help="parameters")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir")
    parser.add_argument("--plot")
    parser.add_argument("--json")
    args = parser.parse_args()

    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    base = Path(tempfile.mkdtemp(prefix="outlive-stall-", dir=args.dir))
    dist.init_process_group("gloo", init_method=f"file://{base}/meeting", rank=0, world_size=1)
    job = Job(args.million)
    calm_s = statistics.median(job.step() for _ in range(5))
    size = job.bytes()
    print(f"{size / 1e9:.2f} GB, a step takes {calm_s:.2f} s, {os.cpu_count()} cores", flush=True)
    taken: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        taken.setdefault(name, []).append(value)
        print(f"  {name}: {value:.3f}", flush=True)

    quiet = {"signals": (), "say": lambda line: None, "load_every": 0, "keep": Keep(latest=1, best=0)}
    ways = {"ours": True, "ours, copied at once": False}
    open_now: dict[str, Checkpointer] = {
        name: Checkpointer(
            str(base / name.replace(" ", "_")),
            model=job.model,
            optimizer=job.optimizer,
            every_steps=1 << 40,
            overlap=overlap,
            **quiet,  # type: ignore[arg-type]
        )
        for name, overlap in ways.items()
    }
    for round_ in range(args.rounds + 1):
        warm = round_ > 0  # the first round allocates the memory that later ones use again
        print(f"round {round_}" + ("" if warm else " (first saves; not counted)"), flush=True)
        keep = note if warm else (lambda name, value: None)
        for name, ckpt in open_now.items():
            waited_s = ckpt._engine.gate.waited_s
            with Peak() as peak:
                begun = time.perf_counter()
                ckpt.save(round_ + 1)
                stall_s = time.perf_counter() - begun
                first_s = job.step()  # it waits before its optimizer step until the copy is whole
                stall_s += ckpt._engine.gate.waited_s - waited_s
                ckpt._writer.wait()
            if not warm:
                taken[name + ", memory / state"] = [peak.most / size]
            keep(name + ", stall", stall_s)
            keep(name + ", first step after", first_s)
            keep(name + ", durable", ckpt.costs[-1].durable_s)
            # an undisturbed save, as torch.save below has the machine to itself
            begun = time.perf_counter()
            ckpt.save(1000 + round_)
            ckpt._writer.wait()
            keep(name + ", durable alone", ckpt.costs[-1].durable_s)
        path = base / "plain.pt"
        path.unlink(missing_ok=True)
        save_s = timed(lambda: torch.save(job.state(), base / "plain.pt"))
        keep("torch.save", save_s)
        keep("torch.save+fsync", save_s + timed(lambda: sync(base / "plain.pt")))
        keep("cp+fsync", timed(lambda: (shutil.copyfile(base / "plain.pt", base / "copy.pt"), sync(base / "copy.pt"))))
        (base / "copy.pt").unlink()
        shutil.rmtree(base / "dcp", ignore_errors=True)
        begun = time.perf_counter()
        future = dcp.async_save(job.state(), checkpoint_id=base / "dcp")
        keep("dcp.async_save, stall", time.perf_counter() - begun)
        keep("dcp.async_save, first step after", job.step())
        future.result()
        shutil.rmtree(base / "dcp")
    ckpt = open_now["ours"]
    saved = ckpt._store.saved(ckpt._store.newest.name)  # type: ignore[union-attr]
    sums = ["sha256sum", *(saved.file(entry.path) for entry in saved.record.files)]
    for _ in range(args.rounds):
        verify_s = timed(lambda: ckpt._store.verify(saved, "bytes", from_storage=False))  # type: ignore[union-attr]
        sum_s = timed(lambda: subprocess.run(sums, check=True, stdout=subprocess.DEVNULL))
        note("verify / sha256sum", verify_s / sum_s)
    middle = {name: statistics.median(values) for name, values in taken.items()}
    ratios = {
        "stall / torch.save": middle["ours, stall"] / middle["torch.save"],
        "stall / dcp.async_save": middle["ours, stall"] / middle["dcp.async_save, stall"],
        "durable / torch.save+fsync": middle["ours, durable alone"] / middle["torch.save+fsync"],
        "durable / cp+fsync": middle["ours, durable alone"] / middle["cp+fsync"],
        "stall copied at once / torch.save": middle["ours, copied at once, stall"] / middle["torch.save"],
        "step beside a save / calm step": middle["ours, first step after"] / calm_s,
        "verify / sha256sum": middle["verify / sha256sum"],
        "memory / state": middle["ours, memory / state"],
    }
    for name, ratio in ratios.items():
        wanted = f"   wanted: at most {WANTED[name]}" if name in WANTED else ""
        print(f"{name:36} {ratio:6.3f}{wanted}")
    for ckpt in open_now.values():
        ckpt.close()
    dist.destroy_process_group()
    shutil.rmtree(base)
    result = {
        "bytes": size,
        "parameters": size // 12,
        "calm_step_s": calm_s,
        "cores": os.cpu_count(),
        "torch": str(torch.__version__),
        "seconds": middle,
        "ratios": ratios,
    }
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1))
    if args.plot:
        plot(result, args.plot)
    raise SystemExit(any(ratios[name] > most for name, most in WANTED.items()))


def plot(result: dict[str, Any], path: str) -> None:
    """Draw the seconds as bars. Needs matplotlib, which nothing else here does."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    seconds = result["seconds"]
    bars = {
        "torch.save": (seconds["torch.save"], 0.0),
        "torch.save + fsync": (seconds["torch.save+fsync"], 0.0),
        "dcp.async_save": (seconds["dcp.async_save, stall"], 0.0),
        "outlive, copied at once": (
            seconds["ours, copied at once, stall"],
            seconds["ours, copied at once, durable alone"],
        ),
        "outlive": (seconds["ours, stall"], seconds["ours, durable alone"]),
    }
    figure, axes = pyplot.subplots(figsize=(8, 3.2))
    for at, (stall, durable) in enumerate(bars.values()):
        if durable:
            axes.barh(at, durable, color="#c9d7e8", label="until durable, beside the training" if at == 4 else None)
        axes.barh(at, stall, color="#c0392b", label="training stands still" if at == 4 else None)
        axes.text(max(stall, durable) * 1.01, at, f" {stall:.2f} s", va="center", fontsize=8)
    axes.set_yticks(range(len(bars)), bars.keys())
    axes.invert_yaxis()
    axes.set_xlabel(f"seconds, {result['bytes'] / 1e9:.1f} GB of state, {result['cores']} cores")
    axes.legend(loc="upper right", fontsize=8)
    axes.set_xlim(0, 1.12 * max(max(pair) for pair in bars.values()))
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
