"""A DataLoader that knows where it is: within the epoch, in which order, with which random numbers, workers included.

The order of an epoch and the random numbers that a dataset draws for a batch depend on (seed, epoch, batch) alone.
So a resumed epoch yields the batches that an undisturbed one would have yielded, augmentation included, and those
already trained on are passed over without being loaded.
"""

import itertools
import random
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

_KEPT = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory_device",
)


class ResumableLoader:
    """Wraps a ``DataLoader``; iterate over it instead. ``epoch`` and ``position`` (batches handed out) are its state.

    ``for batch in loader`` runs the current epoch from its position to its end and then counts ``epoch`` up;
    ``endless()`` goes on into the next epochs. With an ``IterableDataset`` there is no order to skip in: its batches
    are read and dropped up to the position.
    """

    def __init__(self, loader: Any, seed: int = 0) -> None:
        if loader.batch_size is None and loader.batch_sampler is None:
            raise ValueError("a DataLoader with batch_size=None has no batches to count; wrap it in one that has")
        self.loader = loader
        self.seed = seed
        self.epoch = 0
        self.position = 0
        self._streams = isinstance(loader.dataset, IterableDataset)
        self._inner: Optional[Any] = None
        self._order: Optional["_Order"] = None
        self._turn = 0

    @property
    def dataset(self) -> Any:
        return self.loader.dataset

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        self._turn += 1
        return self._run(self._turn)

    def endless(self) -> Iterator[Any]:
        """Yield batches of this epoch, the next, and so on. Raises ValueError for a loader that yields none."""
        while True:
            begun = self.position
            yield from self
            if begun == 0 and self._yielded == 0:
                raise ValueError("the loader is empty")

    def _run(self, turn: int) -> Iterator[Any]:
        self._yielded = 0
        skip = self.position
        for batch in self._batches(skip):
            if turn != self._turn:
                return  # somebody began a newer iteration: an old one must not count
            self.position += 1
            self._yielded += 1
            yield batch
            if turn != self._turn:
                return
        self.epoch += 1
        self.position = 0

    def _batches(self, skip: int) -> Iterator[Any]:
        if self._streams:
            self._set_epoch(self.loader.dataset)
            with _own_generator(self.loader, _mix(self.seed, self.epoch, -1)):
                return itertools.islice(iter(self.loader), skip, None)
        if self._inner is None:
            self._order = _Order(self)
            options = {name: getattr(self.loader, name) for name in _KEPT if hasattr(self.loader, name)}
            if not options.get("num_workers"):
                for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context"):
                    options.pop(name, None)
            if not options.get("pin_memory_device"):
                options.pop("pin_memory_device", None)
            self._inner = DataLoader(
                _Seeded(self.loader.dataset),
                batch_sampler=self._order,
                generator=torch.Generator(),
                **options,
            )
        assert self._order is not None
        self._order.skip = skip
        # the iterator draws the workers' base seed: from here, not from the generator that the training uses
        self._inner.generator.manual_seed(_mix(self.seed, self.epoch, -1))
        return iter(self._inner)

    def _set_epoch(self, one: Any) -> None:
        if hasattr(one, "set_epoch"):
            one.set_epoch(self.epoch)

    def state_dict(self) -> Dict[str, Any]:
        """Return epoch, position, batch size and seed as plain numbers."""
        size = self._batch_size()
        return {"epoch": self.epoch, "position": self.position, "batch_size": size, "seed": self.seed}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Go to where a saved loader was: as many samples into the epoch. Iterators that run already end."""
        self.epoch, self.position, self.seed = state["epoch"], state["position"], state["seed"]
        was, now = state.get("batch_size"), self._batch_size()
        if was and now:
            self.position = state.get("samples", self.position * was) // now
        self._turn += 1

    def _batch_size(self) -> Optional[int]:
        """Return the samples in a batch, None where only the sampler knows."""
        size = self.loader.batch_size or getattr(self.loader.batch_sampler, "batch_size", None)
        return size if isinstance(size, int) else None


class _Order:
    """The batch sampler: the loader's own, seeded by the epoch, from the position on. Its batches carry a seed."""

    def __init__(self, owner: ResumableLoader) -> None:
        self.owner = owner
        self.skip = 0

    def __len__(self) -> int:
        return len(self.owner.loader.batch_sampler)

    def __iter__(self) -> Iterator[List[Any]]:
        owner, skip = self.owner, self.skip
        epoch = owner.epoch
        batches = self._all(owner.loader, _mix(owner.seed, epoch, -2))
        for number, batch in enumerate(itertools.islice(batches, skip, None), skip):
            yield [_Tag(_mix(owner.seed, epoch, number))] + list(batch)

    def _all(self, loader: Any, seed: int) -> Iterator[List[Any]]:
        for one in (loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None)):
            self.owner._set_epoch(one)
        sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
        if isinstance(sampler, SequentialSampler):
            return iter(loader.batch_sampler)
        if hasattr(sampler, "generator") and isinstance(sampler, (RandomSampler,)):
            sampler.generator = torch.Generator()
            sampler.generator.manual_seed(seed)
            return iter(loader.batch_sampler)
        # a sampler that we do not know may draw from any generator, at any time: let it draw everything now
        with _seeded(seed):
            own = getattr(sampler, "generator", None)
            if isinstance(own, torch.Generator):
                own.manual_seed(seed)
            return iter(list(loader.batch_sampler))


class _Tag(NamedTuple):
    """First element of each batch of indices: the seed of what the dataset draws for it."""

    seed: int


class _Seeded:
    """The dataset, asked batch by batch, each under its own random numbers."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[index]

    def __getitems__(self, indices: List[Any]) -> List[Any]:
        tag, wanted = indices[0], indices[1:]
        with _seeded(tag.seed):
            many = getattr(self.dataset, "__getitems__", None)
            return list(many(wanted)) if many is not None else [self.dataset[i] for i in wanted]


class _seeded:
    """Python's, NumPy's and torch's CPU generators begin at ``seed`` inside, and go on as before afterwards."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __enter__(self) -> None:
        numpy = sys.modules.get("numpy")
        self.before = (random.getstate(), torch.get_rng_state(), numpy.random.get_state() if numpy else None)
        random.seed(self.seed)
        torch.default_generator.manual_seed(self.seed)
        if numpy:
            numpy.random.seed(self.seed % (1 << 32))

    def __exit__(self, *_error: Any) -> None:
        random.setstate(self.before[0])
        torch.set_rng_state(self.before[1])
        numpy = sys.modules.get("numpy")
        if numpy and self.before[2] is not None:
            numpy.random.set_state(self.before[2])


class _own_generator:
    """The loader draws from a generator of its own inside."""

    def __init__(self, loader: Any, seed: int) -> None:
        self.loader = loader
        self.seed = seed

    def __enter__(self) -> None:
        self.before = self.loader.generator
        self.loader.generator = torch.Generator()
        self.loader.generator.manual_seed(self.seed)

    def __exit__(self, *_error: Any) -> None:
        self.loader.generator = self.before


def _mix(seed: int, epoch: int, number: int) -> int:
    """Return a seed below 2**62 in which near inputs are far apart (the finisher of SplitMix64)."""
    x = (seed * 0x9E3779B97F4A7C15 + (epoch + 1) * 0xBF58476D1CE4E5B9 + (number + 3) * 0x94D049BB133111EB) % (1 << 64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = ((x ^ (x >> shift)) * factor) % (1 << 64)
    return (x ^ (x >> 31)) >> 2
