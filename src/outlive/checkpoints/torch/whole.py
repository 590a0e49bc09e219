"""Saving a state that every process holds whole: one process, or DDP. Rank 0 writes for all."""

import sys
from typing import Any, Dict, List, Optional, Sequence, Set

import torch

from outlive.checkpoints.errors import CheckpointError
from outlive.checkpoints.record import read_record
from outlive.checkpoints.store import Saved, Store
from outlive.checkpoints.torch import files, per_rank, state
from outlive.checkpoints.torch.ranks import Ranks
from outlive.checkpoints.torch.snapshot import Snapshot, Staging, StepGate, on_cpu, size_of

LATER_FROM_BYTES = 1 << 18
"""Smaller tensors are copied at once: noting one costs as much."""


class Pending:
    """A state on its way to the disk."""

    def __init__(self, tree: Any, size: int, snapshot: Optional[Snapshot]) -> None:
        self._tree = tree
        self.bytes = size
        self.snapshot = snapshot

    @property
    def tree(self) -> Any:
        return self._tree if self.snapshot is None else self.snapshot.tree

    @property
    def staged(self) -> bool:
        """Whether the training may go on while this is written."""
        return self.snapshot is not None

    def finish(self) -> None:
        if self.snapshot is not None:
            self.snapshot.finish()


class Whole:
    """Takes, writes and restores whole states."""

    kind = "full"

    def __init__(self, parts: Dict[str, Any], ranks: Ranks, staging: Staging) -> None:
        self.parts = parts
        self.ranks = ranks
        self.staging = staging
        self.gate = StepGate()
        self.overlap = False
        self.store: Optional[Store] = None

    def watch_optimizers(self) -> None:
        """Let copies run beside the next forward and backward pass, where the optimizers can be made to wait."""
        found: List[Any] = []
        if self.parts.get("optimizer") is not None:
            state.each(self.parts["optimizer"], lambda one, _where: found.append(one), "optimizer")
        self.overlap = self.gate.watch(found)

    def take(self, header: Dict[str, Any], stage: bool) -> Pending:
        """Capture now. With ``stage`` into host memory, unless that is above its cap."""
        if self.ranks.world > 1:
            header = dict(header, ranks=per_rank.gather(self.parts, self.ranks))
            if not self.ranks.first:
                return Pending(None, 0, None)
        tree = dict(header)
        tree.update(state.capture(self.parts))
        size = size_of(tree)
        if not stage or not self.staging.fits(size):
            return Pending(on_cpu(tree), size, None)
        snapshot = self.staging.take(tree, self._later() if self.overlap else None)
        self.gate.guard(snapshot)
        return Pending(None, size, snapshot)

    def _later(self) -> Any:
        addresses: Set[int] = set()

        def note(part: Any, _where: str) -> None:
            addresses.update(p.data_ptr() for p in state.bare(part).parameters())

        if self.parts.get("model") is not None:
            state.each(self.parts["model"], note, "model")

        def later(where: str, tensor: torch.Tensor) -> bool:
            if tensor.numel() * tensor.element_size() < LATER_FROM_BYTES:
                return False
            return where.startswith("optimizer") or (where.startswith("model") and tensor.data_ptr() in addresses)

        return later

    def commit(self, store: Optional[Store], pending: Pending, about: Dict[str, Any]) -> Optional[Saved]:
        """Write and publish; None on the ranks that only watch."""
        if store is None:
            return None
        writing = store.begin(about["step"], expect_bytes=pending.bytes, expect_files=4)
        try:
            files.write(writing, pending.tree, {"step": str(about["step"])})
        except BaseException:
            writing.abandon()
            raise
        return store.publish(writing, kind=self.kind, **{k: v for k, v in about.items() if k != "step"})

    def read(self, saved: Saved) -> Any:
        """Load a checkpoint's files. Raises Damaged."""
        return files.read(saved.path)

    def state_for(self, saved: Saved, loaded: Any) -> Any:
        """Return the state on every rank; rank 0 has it ``loaded``. Who cannot read its files gets it sent."""
        if self.ranks.world == 1:
            return loaded
        mine, blind = loaded, 0
        if mine is None:
            try:
                blind = int(read_record(saved.path).id != saved.record.id)
                mine = None if blind else files.read(saved.path)
            except CheckpointError:
                blind = 1
        if self.ranks.most([blind])[0]:
            sent = self.ranks.share(loaded)
            mine = sent if mine is None else mine
        return mine

    def restore(self, saved: Any, allow: Sequence[str], source: str) -> List[str]:
        """Put a loaded state back, this rank's random numbers and place in the data included."""
        mine, said = per_rank.mine(saved, self.ranks)
        return said + state.restore(mine, self.parts, allow, source=source)


def made_by(ranks: Ranks) -> Dict[str, Any]:
    """Return the versions that made a checkpoint."""
    return {
        "torch": str(torch.__version__),
        "python": "%d.%d.%d" % sys.version_info[:3],
        "world": ranks.world,
        "state": state.FORMAT,
    }
