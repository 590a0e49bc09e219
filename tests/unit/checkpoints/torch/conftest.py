"""Trainings small enough to be repeated in each test, with every part that a checkpoint has to carry."""

import copy
import random

import pytest

try:
    import torch
except ImportError:  # then only test_installed.py is collected, and fails: a missing library must not look like a pass
    torch = None

collect_ignore_glob = ["test_[!i]*.py"] if torch is None else []


def pytest_collection_modifyitems(items):
    for item in items:
        if "checkpoints/torch" in str(item.fspath).replace("\\", "/"):
            item.add_marker(pytest.mark.torch)


class Numbers(torch.utils.data.Dataset if torch is not None else object):
    """Augments with three generators: a resumed epoch must draw the same numbers."""

    def __init__(self, length=24):
        self.length = length
        self.read = []

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        self.read.append(i)
        x = torch.full((4,), float(i) / self.length) + torch.rand(4) * 0.1 + random.random() * 0.1
        return x, torch.tensor([float(i % 3)])


class Training:
    """A network with dropout and batch norm, AdamW, a schedule, an EMA and a shuffled loader."""

    def __init__(self, directory, workers=0, **options):
        from outlive.checkpoints.torch import Checkpointer, ResumableLoader

        torch.manual_seed(1)
        random.seed(1)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(4, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [5, 9, 14], gamma=0.5)
        self.ema = copy.deepcopy(self.model)
        self.loader = ResumableLoader(
            torch.utils.data.DataLoader(Numbers(), batch_size=4, shuffle=True, num_workers=workers), seed=7
        )
        self.extra = {"best": 9.0, "seen": []}
        self.said = []
        self.ckpt = Checkpointer(
            str(directory),
            model=self.model,
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            loader=self.loader,
            ema=self.ema,
            extra=self.extra,
            signals=(),
            say=self.said.append,
            **options,
        )

    def run(self, until, every=5, **resume):
        step = self.ckpt.resume(**resume)
        batches = self.loader.endless()
        while step < until:
            x, y = next(batches)
            loss = (self.model(x) - y).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            with torch.no_grad():
                for mean, value in zip(self.ema.parameters(), self.model.parameters()):
                    mean.lerp_(value, 0.1)
            step += 1
            self.extra["best"] = min(self.extra["best"], loss.item())
            self.extra["seen"].append(round(float(x.sum()), 6))
            if step % every == 0:
                self.ckpt.save(step, metrics={"val_loss": loss.item()})
        return self

    def end(self):
        self.ckpt.close()
        return self

    def state(self):
        """Everything that the next step depends on, as one flat dict."""
        from outlive.checkpoints.torch import state
        from outlive.checkpoints.torch.snapshot import map_tensors

        tree = state.capture(self.ckpt._engine.parts)
        return map_tensors(tree, lambda _where, tensor: tensor.clone())


def equal(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b


@pytest.fixture
def training():
    """``training(directory, **options)`` builds one; they are closed at the end."""
    made = []

    def make(directory, **options):
        made.append(Training(directory, **options))
        return made[-1]

    yield make
    for one in made:
        one.ckpt.close()


@pytest.fixture
def same():
    """``same(a, b)``: whether two states are equal to the last bit."""
    return equal
