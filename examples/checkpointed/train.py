"""A plain torch loop that can be killed at any line, and ends with the weights of an undisturbed run.

What makes it so: everything that the next step depends on is given to the Checkpointer, it is resumed without being
asked, and the loader is one that knows its place.
"""

import argparse
import hashlib
import random

import torch
from torch.utils.data import DataLoader, TensorDataset

from outlive.checkpoints.torch import Checkpointer, ResumableLoader

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--every-steps", type=int, default=None, help="default: what the platform's interruptions ask for")
args = parser.parse_args()

torch.manual_seed(1)
random.seed(1)
x = torch.randn(512, 16)
y = x[:, :4].prod(1, keepdim=True)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
loader = ResumableLoader(DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True), seed=1)

with Checkpointer(
    "out/ckpt",
    model=model,
    optimizer=optimizer,
    scheduler=scheduler,
    loader=loader,
    config={"steps": args.steps, "lr": 1e-2},
    every_steps=args.every_steps,
) as ckpt:
    step = ckpt.resume()
    batches = loader.endless()
    while step < args.steps:
        inputs, targets = next(batches)
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        step += 1
        if step % 20 == 0:
            print(f"step {step}/{args.steps} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.5f}", flush=True)
        ckpt.maybe_save(step)
    ckpt.save(step)

digest = hashlib.sha256()
for _name, value in sorted(model.state_dict().items()):
    digest.update(bytes(value.flatten().view(torch.uint8).tolist()))
print("weights", digest.hexdigest())
