"""The processes of one training, and what they have to agree on. With one process everything here is free."""

from typing import Any, List, Optional, Sequence

import torch
import torch.distributed as dist


class Ranks:
    """A gloo group of its own: numbers on the CPU are compared without waiting for the GPU's stream."""

    def __init__(self) -> None:
        here = dist.is_available() and dist.is_initialized()
        self.world: int = dist.get_world_size() if here else 1
        self.rank: int = dist.get_rank() if here else 0
        self.group: Any = dist.new_group(backend="gloo") if self.world > 1 else None

    @property
    def first(self) -> bool:
        return self.rank == 0

    def most(self, numbers: Sequence[int]) -> List[int]:
        """Return, for each place, the greatest number that any rank gave."""
        if self.world == 1:
            return list(numbers)
        shared = torch.tensor(list(numbers), dtype=torch.int64)
        dist.all_reduce(shared, op=dist.ReduceOp.MAX, group=self.group)
        return [int(n) for n in shared.tolist()]

    def gather(self, value: Any) -> Optional[List[Any]]:
        """Return every rank's value on rank 0, None elsewhere."""
        if self.world == 1:
            return [value]
        found: Optional[List[Any]] = [None] * self.world if self.first else None
        dist.gather_object(value, found, dst=0, group=self.group)
        return found

    def share(self, value: Any = None) -> Any:
        """Return rank 0's value on every rank."""
        if self.world == 1:
            return value
        box = [value if self.first else None]
        dist.broadcast_object_list(box, src=0, group=self.group)
        return box[0]

    def barrier(self) -> None:
        if self.world > 1:
            dist.barrier(group=self.group)
