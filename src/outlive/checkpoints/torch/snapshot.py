"""A copy of a training's tensors in host memory that stays as it is while the training goes on.

Three ways, each tensor by the cheapest that is right:

- CUDA: copied into pinned memory on a stream of its own; later kernels wait for it, the Python thread does not.
- what only the optimizer changes (parameters and its own state): copied beside the next forward and backward pass, and
  ``Optimizer.step`` waits until that is done (CheckFreq calls it pipelining). Counters and samples tell afterwards
  whether something else changed them meanwhile; then that snapshot is torn and never written.
- the rest: copied at once.

The memory is allocated once and used again for each save.
"""

import ctypes
import os
import threading
import time
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

import torch

from outlive.probes.cgroup import cgroup

SHARE_OF_FREE = 0.5
"""Without a cap of the user's, staging takes at most this share of what is free."""

SAMPLE_EVERY = 65536
"""One element in so many is compared before and after a copy that runs beside the training."""


class Torn(Exception):
    """Something other than the optimizer changed tensors while they were copied. The snapshot was thrown away."""


class Snapshot:
    """The state with every tensor replaced by its copy. ``tree`` may be read after ``finish``."""

    def __init__(self, tree: Any, size: int) -> None:
        self.tree = tree
        self.bytes = size
        self.later: List["_Later"] = []
        self.events: List[Any] = []
        self.copied = threading.Event()
        self.failed: Optional[BaseException] = None

    def finish(self) -> None:
        """Complete the copy; called by the writer's thread. Raises ``Torn``."""
        try:
            for event in self.events:
                event.synchronize()
            for one in self.later:
                one.copy()
        except BaseException as error:
            self.failed = error
            raise
        finally:
            self.later = []
            self.copied.set()


class _Later(NamedTuple):
    """A tensor that is copied beside the training, and what it looked like when the snapshot was taken."""

    where: str
    source: torch.Tensor
    copy_to: torch.Tensor
    version: int
    sample: torch.Tensor

    def copy(self) -> None:
        size = self.source.numel() * self.source.element_size()
        ctypes.memmove(self.copy_to.data_ptr(), self.source.data_ptr(), size)  # releases the interpreter lock
        if self.source._version != self.version or not _same(_sample(self.copy_to), self.sample):
            raise Torn(self.where)


class Staging:
    """Host memory for snapshots, allocated once. ``cap_bytes`` bounds it; None takes half of what is free."""

    def __init__(self, cap_bytes: Optional[int] = None, pin: bool = True) -> None:
        self.cap_bytes = cap_bytes
        self.bytes = 0
        self._pin = pin
        self._buffers: Dict[str, torch.Tensor] = {}
        self._stream: Any = None

    def fits(self, size: int) -> bool:
        """Whether a snapshot of ``size`` bytes stays below the cap."""
        return size <= self.bytes or size <= self.limit()

    def limit(self) -> int:
        """Return the most bytes that staging may take now, what it has already included."""
        if self.cap_bytes is not None:
            return self.cap_bytes
        return self.bytes + int(free_bytes() * SHARE_OF_FREE)

    def take(self, tree: Any, later: Optional[Callable[[str, torch.Tensor], bool]] = None) -> Snapshot:
        """Copy ``tree``. Tensors that ``later`` accepts are only noted, and copied by ``Snapshot.finish``."""
        snapshot = Snapshot(None, 0)
        done: Dict[Tuple[Any, ...], torch.Tensor] = {}
        streams: Dict[Any, Any] = {}

        def one(where: str, tensor: torch.Tensor) -> torch.Tensor:
            identity = identity_of(tensor)
            if identity in done:
                return done[identity]
            buffer = self._buffer(where, tensor)
            snapshot.bytes += buffer.numel() * buffer.element_size()
            done[identity] = buffer
            if tensor.is_cuda:
                stream = streams.get(tensor.device)
                if stream is None:
                    stream = streams[tensor.device] = torch.cuda.Stream(tensor.device)
                    stream.wait_stream(torch.cuda.current_stream(tensor.device))
                with torch.cuda.stream(stream):
                    buffer.copy_(tensor, non_blocking=True)
                tensor.record_stream(stream)
            elif later is not None and tensor.device.type == "cpu" and tensor.is_contiguous() and later(where, tensor):
                snapshot.later.append(_Later(where, tensor, buffer, tensor._version, _sample(tensor)))
            else:
                with torch.no_grad():
                    buffer.copy_(tensor)
            return buffer

        snapshot.tree = map_tensors(tree, one)
        for device, stream in streams.items():
            torch.cuda.current_stream(device).wait_stream(stream)  # later kernels wait, this thread does not
            event = torch.cuda.Event()
            event.record(stream)
            snapshot.events.append(event)
        return snapshot

    def _buffer(self, where: str, tensor: torch.Tensor) -> torch.Tensor:
        buffer = self._buffers.get(where)
        pin = self._pin and tensor.is_cuda
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            if buffer is not None:
                self.bytes -= buffer.numel() * buffer.element_size()
            buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pin)
            self._buffers[where] = buffer
            self.bytes += buffer.numel() * buffer.element_size()
        return buffer


def identity_of(tensor: torch.Tensor) -> Tuple[Any, ...]:
    """Return what two names of the same tensor share; empty tensors are all different."""
    if not tensor.numel():
        return (id(tensor),)
    return (tensor.device, tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)


def map_tensors(tree: Any, act: Callable[[str, torch.Tensor], Any], where: str = "") -> Any:
    """Return ``tree`` with ``act(path, tensor)`` in place of each tensor."""
    if isinstance(tree, torch.Tensor):
        return act(where, tree)
    if isinstance(tree, dict):
        return {k: map_tensors(v, act, "%s.%s" % (where, k) if where else str(k)) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_tensors(v, act, "%s[%d]" % (where, i)) for i, v in enumerate(tree))
    return tree


def tensors_of(tree: Any) -> Iterable[Tuple[str, torch.Tensor]]:
    """Return (path, tensor) of each different tensor in ``tree``."""
    found: Dict[Tuple[Any, ...], Tuple[str, torch.Tensor]] = {}

    def note(where: str, tensor: torch.Tensor) -> None:
        found.setdefault(identity_of(tensor), (where, tensor))

    map_tensors(tree, note)
    return found.values()


def size_of(tree: Any) -> int:
    """Return the bytes of the different tensors in ``tree``."""
    return sum(t.numel() * t.element_size() for _where, t in tensors_of(tree))


def on_cpu(tree: Any) -> Any:
    """Return ``tree`` with contiguous CPU tensors; those that are it already are not copied."""
    done: Dict[Tuple[Any, ...], torch.Tensor] = {}

    def one(_where: str, tensor: torch.Tensor) -> torch.Tensor:
        identity = identity_of(tensor)
        if identity not in done:
            done[identity] = tensor.cpu().contiguous()
        return done[identity]

    return map_tensors(tree, one)


def free_bytes() -> int:
    """Return the memory that this process may still take: the machine's, or its control group's where that is less."""
    free = 0
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    free = int(line.split()[1]) * 1024
    except OSError:
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    group = cgroup()
    if group.memory_limit_bytes is not None and group.memory_used_bytes is not None:
        used = group.memory_used_bytes - (group.memory_reclaimable_bytes or 0)
        free = min(free, group.memory_limit_bytes - used)
    return max(0, free)


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Return a few of a tensor's elements, the first and the last among them."""
    flat = tensor.detach().reshape(-1)
    return torch.cat([flat[::SAMPLE_EVERY], flat[-1:]])


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the bytes are equal: a NaN is equal to itself here."""
    return bool(torch.equal(a.view(torch.uint8), b.view(torch.uint8)))


class StepGate:
    """Makes ``Optimizer.step`` wait for the copy that is under way, and adds up how long it waited."""

    def __init__(self) -> None:
        self.waited_s = 0.0
        self._snapshot: Optional[Snapshot] = None
        self._hooks: List[Any] = []

    def watch(self, optimizers: Iterable[Any]) -> bool:
        """Register with every optimizer; False, and nothing registered, if one has no hook before its step."""
        known = list(optimizers)
        if not known or not all(hasattr(o, "register_step_pre_hook") for o in known):
            return False
        self._hooks = [o.register_step_pre_hook(self._before_step) for o in known]
        return True

    def guard(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def wait(self) -> None:
        """Return when nothing is being copied any more."""
        snapshot = self._snapshot
        if snapshot is not None:
            begun = time.monotonic()
            snapshot.copied.wait()
            self.waited_s += time.monotonic() - begun
            self._snapshot = None

    def _before_step(self, *_args: Any) -> None:
        self.wait()

    def close(self) -> None:
        self.wait()
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
