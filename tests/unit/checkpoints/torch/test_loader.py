"""A loader that goes on where it was: the same batches, the same random numbers, nothing loaded twice."""

import random

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, WeightedRandomSampler

from outlive.checkpoints.torch import ResumableLoader


class Noisy(Dataset):
    def __init__(self):
        self.read = []

    def __len__(self):
        return 11

    def __getitem__(self, i):
        self.read.append(i)
        return i + torch.rand(1).item() / 4 + random.random() / 4


class Odd(Sampler):
    """Draws from Python's generator, when it likes."""

    def __init__(self):
        pass

    def __len__(self):
        return 11

    def __iter__(self):
        for _ in range(11):
            yield random.randrange(11)


def kinds():
    return {
        "plain": {},
        "shuffled": {"shuffle": True},
        "weighted": {"sampler": WeightedRandomSampler([1.0] * 11, 11)},
        "unknown sampler": {"sampler": Odd()},
        "drop_last": {"shuffle": True, "drop_last": True},
    }


def take(loader, n):
    batches = loader.endless()
    return [next(batches).tolist() for _ in range(n)]


@pytest.mark.parametrize("kind", kinds())
def test_it_goes_on_within_the_epoch_and_into_the_next(kind):
    expected = take(ResumableLoader(DataLoader(Noisy(), 2, **kinds()[kind]), seed=3), 15)
    for cut in (1, 4, 5, 6, 9):
        first = ResumableLoader(DataLoader(Noisy(), 2, **kinds()[kind]), seed=3)
        begun = take(first, cut)
        data = Noisy()
        second = ResumableLoader(DataLoader(data, 2, **kinds()[kind]))
        second.load_state_dict(first.state_dict())
        assert begun + take(second, 15 - cut) == expected
        assert len(data.read) <= 2 * (15 - cut)  # what was trained on is not loaded again


def test_epochs_differ_and_the_trainings_own_random_numbers_are_left_alone():
    loader = ResumableLoader(DataLoader(Noisy(), 2, shuffle=True))
    torch.manual_seed(5)
    random.seed(5)
    before = torch.get_rng_state(), random.getstate()
    first, second = list(loader), list(loader)
    assert [int(v) for b in first for v in b] != [int(v) for b in second for v in b]
    assert torch.equal(before[0], torch.get_rng_state()) and before[1] == random.getstate()
    assert (loader.epoch, loader.position) == (2, 0)


def test_workers_draw_the_numbers_that_the_main_process_would():
    expected = take(ResumableLoader(DataLoader(Noisy(), 2, shuffle=True), seed=1), 9)
    first = ResumableLoader(DataLoader(Noisy(), 2, shuffle=True, num_workers=1), seed=1)
    begun = take(first, 4)
    second = ResumableLoader(DataLoader(Noisy(), 2, shuffle=True, num_workers=1), seed=1)
    second.load_state_dict(first.state_dict())
    assert begun + take(second, 5) == expected


def test_a_stream_is_read_up_to_the_position():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(9))

    first = ResumableLoader(DataLoader(Stream(), 2))
    assert take(first, 3) == [[0, 1], [2, 3], [4, 5]]
    second = ResumableLoader(DataLoader(Stream(), 2))
    second.load_state_dict(first.state_dict())
    assert take(second, 4) == [[6, 7], [8], [0, 1], [2, 3]]


def test_an_empty_loader_is_no_endless_loop():
    loader = ResumableLoader(DataLoader([], 2))
    with pytest.raises(ValueError, match="empty"):
        next(loader.endless())


def test_torchdatas_own_loader_keeps_its_place(tmp_path):
    from torchdata.stateful_dataloader import StatefulDataLoader

    from outlive.checkpoints.torch import Checkpointer

    def make():
        return StatefulDataLoader(
            list(range(12)), batch_size=2, shuffle=True, generator=torch.Generator().manual_seed(2)
        )

    expected = [b.tolist() for b in make()]
    loader = make()
    batches = iter(loader)
    begun = [next(batches).tolist() for _ in range(3)]
    with Checkpointer(str(tmp_path), loader=loader, signals=()) as ckpt:
        ckpt.save(3)
    again = make()
    with Checkpointer(str(tmp_path), loader=again, signals=()) as ckpt:
        assert ckpt.resume() == 3
    assert begun + [b.tolist() for b in again] == expected
