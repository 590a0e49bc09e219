"""How fast `diagnose` reads a large log, beside ripgrep with as many patterns; its memory; its start.

python benchmarks/diagnose.py [MEGABYTES]     default 100
"""

from __future__ import annotations

import json
import os
import pkgutil
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
ENV.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program is compiled
SEED = 4


def write_log(path: Path, megabytes: int) -> None:
    """Write what a run of 64 ranks prints, with a failure at its end."""
    random.seed(SEED)
    block = []
    for n in range(8000):
        step, rank = n // 8, n % 64
        block.append(
            random.choice(
                (
                    f"[rank{rank}]: step {step} | loss {random.random() * 3:.4f} | lr 3e-04 | gnorm 0.9 | 4102 tok/s",
                    f"2026-11-02 10:00:00,123 INFO trainer.py:210 rank={rank} iteration {step}/100000 took 1.204 s",
                    f"node{rank}:4101:4210 [{rank % 8}] NCCL INFO Channel 02/0 : 0[0] -> 1[1] via P2P/CUMEM",
                    "UserWarning: None of the inputs have requires_grad=True. Gradients will be None",
                    "saving shard 3 of 8, 1.9 GB, verified",
                )
            )
        )
    data = ("\n".join(block) + "\n").encode()
    with path.open("wb") as handle:
        for _ in range(max(1, megabytes * 1_000_000 // len(data))):
            handle.write(data)
        handle.write(b"[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")


def timed(words: list[str], **more: object) -> float:
    """Return the wall time of a command."""
    begin = time.perf_counter()
    subprocess.run(words, stdout=subprocess.DEVNULL, env=ENV, check=False, **more)  # type: ignore[call-overload]
    return time.perf_counter() - begin


def main() -> int:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory() as folder:
        ENV["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "compiled")
        log = Path(folder) / "run.log"
        write_log(log, megabytes)
        size = log.stat().st_size / 1e6
        command = [sys.executable, "-m", "outlive", "diagnose", "--json", str(log)]
        ours = timed(command)
        peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"diagnose: {size / ours:.1f} MB/s over {size:.0f} MB, peak memory {peak_mb:.0f} MB")
        if shutil.which("rg"):
            raw = pkgutil.get_data("outlive.diagnose", "patterns.json")
            assert raw is not None
            rules = json.loads(raw)["rules"]
            patterns = [
                piece[0] for rule in rules for piece in rule[5] if "(?!" not in piece[0] and "(?<" not in piece[0]
            ]
            (Path(folder) / "patterns").write_text("\n".join(patterns) + "\n")
            theirs = timed(["rg", "-c", "-f", str(Path(folder) / "patterns"), str(log)])
            print(
                f"ripgrep:  {size / theirs:.1f} MB/s with {len(patterns)} patterns; ours is 1/{ours / theirs:.0f} of it"
            )
        else:
            print("ripgrep:  not installed here")
        small = Path(folder) / "small.log"
        small.write_bytes(log.read_bytes()[-5000:])
        start = min(timed([*command[:-1], str(small)]) for _ in range(7))
        nothing = min(timed([sys.executable, "-c", "pass"]) for _ in range(7))
        print(
            f"5 kB log: {start * 1000:.0f} ms, {start / nothing:.1f} times `python -c pass` ({nothing * 1000:.0f} ms)"
        )
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    sys.exit(main())
