"""Train a character model on the sources of Python's own standard library. Pure Python, a few seconds.

Three characters go in, the next one is guessed: embeddings, one tanh layer, softmax, Adam. It is real training
in small: the loss falls, and weights, optimizer and random numbers all have to survive a crash, or the end differs.

What makes it crash-proof is not much. A checkpoint holds everything that the next step depends on; it is written
aside and renamed, so that a file with its final name is always whole; the start always looks for the newest one.
"""

import argparse
import glob
import json
import math
import os
import random
import sysconfig
import time
from operator import mul

CONTEXT, EMBED, HIDDEN, BATCH = 4, 8, 48, 10
SOURCES = (
    "argparse.py",
    "ast.py",
    "csv.py",
    "enum.py",
    "json/decoder.py",
    "pathlib.py",
    "random.py",
    "shutil.py",
    "textwrap.py",
)
CKPT = "out/ckpt"

Row = list[float]
Matrix = list[Row]
Params = dict[str, Matrix]


def read_text() -> str:
    """Lower case and common characters only: a small vocabulary is learned in seconds."""
    stdlib = sysconfig.get_paths()["stdlib"]
    text = ""
    for name in SOURCES:
        path = os.path.join(stdlib, name)
        if os.path.exists(path):  # a few moved between versions of Python
            with open(path, encoding="utf-8") as source:
                text += source.read().lower()
    common = "\n abcdefghijklmnopqrstuvwxyz0123456789_.,:;=()[]{}'\"#+-*/<>%@!|"
    return "".join(c for c in text if c in common)


def new_matrix(rows: int, columns: int, rng: random.Random) -> Matrix:
    return [[rng.gauss(0.0, columns**-0.5) for _ in range(columns)] for _ in range(rows)]


def zeros_like(matrix: Matrix) -> Matrix:
    return [[0.0] * len(row) for row in matrix]


def loss_and_gradient(p: Params, g: Params, context: list[int], target: int) -> float:
    """Forward and backward for one example; adds to ``g`` and returns the loss in nats."""
    x = [value for c in context for value in p["embed"][c]] + [1.0]  # the last 1.0 makes the last column a bias
    h = [math.tanh(sum(map(mul, row, x))) for row in p["hidden"]] + [1.0]
    logits = [sum(map(mul, row, h)) for row in p["out"]]
    top = max(logits)
    exps = [math.exp(z - top) for z in logits]
    total = sum(exps)
    dh = [0.0] * HIDDEN
    for v, e in enumerate(exps):
        d = e / total - (v == target)
        g["out"][v] = [a + d * b for a, b in zip(g["out"][v], h)]
        dh = [a + d * b for a, b in zip(dh, p["out"][v])]
    dx = [0.0] * (CONTEXT * EMBED)
    for j in range(HIDDEN):
        d = dh[j] * (1.0 - h[j] * h[j])
        g["hidden"][j] = [a + d * b for a, b in zip(g["hidden"][j], x)]
        dx = [a + d * b for a, b in zip(dx, p["hidden"][j])]
    for i, c in enumerate(context):
        g["embed"][c] = [a + b for a, b in zip(g["embed"][c], dx[i * EMBED : (i + 1) * EMBED])]
    return float(math.log(total) + top - logits[target])


def adam(p: Matrix, g: Matrix, m: Matrix, v: Matrix, step: int, lr: float) -> None:
    scale = lr * math.sqrt(1 - 0.99**step) / (1 - 0.9**step)
    for r, row in enumerate(g):
        m[r] = [0.9 * a + 0.1 * b / BATCH for a, b in zip(m[r], row)]
        v[r] = [0.99 * a + 0.01 * (b / BATCH) ** 2 for a, b in zip(v[r], row)]
        p[r] = [a - scale * b / (math.sqrt(c) + 1e-8) for a, b, c in zip(p[r], m[r], v[r])]


def save(state: object, path: str, seconds: float = 0.0) -> None:
    """Write aside, sync, rename. ``seconds`` stretches it: real ones are large, and a kill can hit the middle."""
    raw = json.dumps(state).encode("ascii")
    with open(path + ".tmp", "wb") as aside:
        for at in range(0, len(raw), len(raw) // 8 + 1):
            aside.write(raw[at : at + len(raw) // 8 + 1])
            aside.flush()
            time.sleep(seconds / 8)
        os.fsync(aside.fileno())
    os.replace(path + ".tmp", path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--save-every", type=int, default=60)
    args = parser.parse_args()

    text = read_text()
    alphabet = sorted(set(text))
    ids = [alphabet.index(c) for c in text]
    os.makedirs(CKPT, exist_ok=True)
    newest = max(glob.glob(CKPT + "/step-*.json"), default="")
    if newest:
        with open(newest, encoding="ascii") as file:
            state = json.load(file)
        print(f"resumed from {newest}", flush=True)
    else:
        rng = random.Random(1)
        width = CONTEXT * EMBED + 1
        shapes = {"embed": (len(alphabet), EMBED), "hidden": (HIDDEN, width), "out": (len(alphabet), HIDDEN + 1)}
        params = {name: new_matrix(rows, columns, rng) for name, (rows, columns) in shapes.items()}
        moments = [{name: zeros_like(p) for name, p in params.items()} for _ in range(2)]
        state = {"step": 0, "params": params, "m": moments[0], "v": moments[1], "rng": rng.getstate(), "smooth": None}
        print(f"{len(ids)} characters, {len(alphabet)} symbols, from zero", flush=True)

    params, (version, internal, gauss) = state["params"], state["rng"]
    rng = random.Random()
    rng.setstate((version, tuple(internal), gauss))
    for step in range(state["step"] + 1, args.steps + 1):
        began = time.perf_counter()
        grads = {name: zeros_like(p) for name, p in params.items()}
        loss = 0.0
        for _ in range(BATCH):
            at = rng.randrange(CONTEXT, len(ids))
            loss += loss_and_gradient(params, grads, ids[at - CONTEXT : at], ids[at]) / BATCH
        lr = 0.02 * (1 - step / (args.steps + 1))
        for name in params:
            adam(params[name], grads[name], state["m"][name], state["v"][name], step, lr)
        state["smooth"] = loss if state["smooth"] is None else 0.97 * state["smooth"] + 0.03 * loss
        if step % 10 == 0:
            took_ms = 1000 * (time.perf_counter() - began)
            print(f"iter {step}: loss {state['smooth']:.4f}, time {took_ms:.2f}ms", flush=True)
        if step % args.save_every == 0 or step == args.steps:
            state.update(step=step, rng=rng.getstate())
            save(state, f"{CKPT}/step-{step:06d}.json", seconds=0.3)

    save({"alphabet": alphabet, "params": params}, "out/model.json")
    save({"steps": state["step"], "loss": state["smooth"]}, "out/metrics.json")
    print(f"done: loss {state['smooth']:.4f} after {state['step']} steps", flush=True)


if __name__ == "__main__":
    main()
