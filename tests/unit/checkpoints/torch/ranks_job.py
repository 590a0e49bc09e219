"""What the tests with several processes run.

Under torchrun: ranks_job.py KIND DIRECTORY STEPS. Alone: ranks_job.py phases FILE, where FILE holds a JSON list of
the arguments of ``phase``.
"""

import hashlib
import importlib
import json
import os
import signal
import sys

import torch
import torch.distributed as dist

from outlive.checkpoints.torch import Checkpointer, ResumableLoader

torch.set_num_threads(1)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, i):
        return torch.full((8,), i / 48), torch.tensor([float(i % 5)])


def build(kind, world):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Tanh(), torch.nn.Linear(12, 1))
    if kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    elif kind == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        mesh = dist.init_device_mesh("cpu", (world,))
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif kind == "tp":
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = dist.init_device_mesh("cpu", (world,))
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return model


def full(value):
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def train(kind, directory, until, die=False):
    """Train to step ``until``; return (step begun at, digest of the whole weights, their sum)."""
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build(kind, world)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    data = Numbers()
    sampler = None
    if kind != "tp":  # all ranks of a tensor parallel group see the same batch
        sampler = torch.utils.data.DistributedSampler(data, world, rank, shuffle=True)
    loader = ResumableLoader(torch.utils.data.DataLoader(data, 12 // (1 if kind == "tp" else world), sampler=sampler))
    ckpt = Checkpointer(
        directory, model=model, optimizer=optimizer, loader=loader, every_steps=2, load_every=2, signals=()
    )
    begun = step = ckpt.resume()
    batches = loader.endless()
    while step < until:
        x, y = next(batches)
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if die and step == until:
            if rank == world - 1:
                # it took part in the beginning of the save, and dies before its files are published
                ckpt._engine.commit = lambda *_args: os.kill(os.getpid(), signal.SIGKILL)
            ckpt.save(step)
            ckpt.wait()
        elif step == until:
            ckpt.save(step)
        else:
            ckpt.maybe_save(step)
    ckpt.close()
    digest, total = hashlib.sha256(), 0.0
    for _name, value in sorted(model.state_dict().items()):
        whole = full(value)
        total += whole.double().sum().item()
        digest.update(whole.contiguous().numpy().tobytes())
    return [begun, digest.hexdigest(), round(total, 6)]


def phase(base, kind, directory, world, until, die=False):
    """Fork one process for each rank, which finds the others through a file; return rank 0's answer or its error."""
    meeting = os.path.join(base, "meeting")
    answer = os.path.join(base, "answer")
    for path in (meeting, answer):
        if os.path.exists(path):
            os.unlink(path)
    children = []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            said = ""
            try:
                dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=world)
                said = json.dumps(train(kind, directory, until, die))
            except BaseException as error:
                said = json.dumps({"error": "%s: %s" % (type(error).__name__, error)})
            finally:
                if rank == 0:
                    with open(answer, "w") as file:
                        file.write(said)
                os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    with open(answer) as file:
        return json.load(file)


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "phases":
        # one import of torch for all of them
        for name in ("checkpoint.state_dict", "fsdp", "tensor.parallel"):
            importlib.import_module("torch.distributed." + name)

        with open(sys.argv[2]) as file:
            phases = json.load(file)
        base = os.path.dirname(sys.argv[2])
        print(json.dumps([phase(base, *one) for one in phases]))
        return
    dist.init_process_group("gloo")
    answer = json.dumps({"rank": dist.get_rank(), "answer": train(sys.argv[1], sys.argv[2], int(sys.argv[3]))})
    os.write(1, (answer + "\n").encode("ascii"))  # at once: the ranks share a pipe, and `print` may write twice
    dist.barrier()  # whoever ends first takes the others' store away
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
