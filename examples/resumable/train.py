"""A training loop that can be killed at any line: the smallest one that outlive needs.

It saves aside and renames, loads the newest save without being asked, and draws its random numbers
from the step, so that an interrupted run ends with the bytes of an undisturbed one.
"""

import json
import os
import random
import sys
import time

STEPS = 240
LR = float(sys.argv[1]) if len(sys.argv) > 1 else 0.015

os.makedirs("out/ckpt", exist_ok=True)
saved = sorted(name for name in os.listdir("out/ckpt") if name.endswith(".json"))
state = {"step": 0, "loss": 4.0}
if saved:
    with open(os.path.join("out/ckpt", saved[-1])) as f:
        state = json.load(f)

for step in range(state["step"] + 1, STEPS + 1):
    noise = random.Random(step).random() * 0.02
    state = {"step": step, "loss": state["loss"] * (1 - LR) + noise}
    print(f"step {step}/{STEPS} loss {state['loss']:.4f} lr {LR}", flush=True)
    if step % 20 == 0:
        path = f"out/ckpt/step-{step:05d}.json"
        with open(path + ".tmp", "w") as f:
            json.dump(state, f)
            f.flush()
            os.fsync(f.fileno())
        os.replace(path + ".tmp", path)
    time.sleep(0.1)

with open("out/result.json", "w") as f:
    json.dump(state, f)
