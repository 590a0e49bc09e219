"""Saving a state of which each process holds a part: fully_shard or tensor parallel. All ranks commit, or none.

The parts are written by ``torch.distributed.checkpoint`` into ``shards/`` of the save, every rank its own, and each
rank digests and fsyncs its files. Rank 0 gathers their digests and publishes, so a rank that dies before leaves the
previous checkpoint as the newest. Loading goes through the same library, which cuts the tensors anew for another
number of processes. The directory has to be one that all ranks see.
"""

import os
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import state_dict as states

from outlive.checkpoints.commit import Writing
from outlive.checkpoints.errors import CheckpointError, Damaged, Mismatch
from outlive.checkpoints.store import Saved, Store
from outlive.checkpoints.torch import per_rank, state, torch_zip
from outlive.checkpoints.torch.files import STATE
from outlive.checkpoints.torch.ranks import Ranks
from outlive.checkpoints.torch.snapshot import Staging, StepGate, map_tensors, on_cpu

SHARDS = "shards"
ACROSS = ("model", "optimizer", "ema")
"""Parts that lie across the ranks; the others are the same everywhere, and rank 0 writes them."""


class Pending:
    """A save that every rank takes part in; ``future`` is None when the files are written already."""

    def __init__(self, path: str, writing: Optional[Writing], size: int, future: Any, rest: Dict[str, Any]) -> None:
        self.path = path
        self.writing = writing
        self.bytes = size
        self.future = future
        self.rest = rest

    @property
    def staged(self) -> bool:
        return self.future is not None

    def finish(self) -> None:
        """The staging is over when ``take`` returns."""


class Sharded:
    """Takes, writes and restores states that lie across processes."""

    kind = "sharded"

    def __init__(self, parts: Dict[str, Any], ranks: Ranks, staging: Staging) -> None:
        self.parts = parts
        self.ranks = ranks
        self.behind = Ranks()  # the writer's thread talks to the others' here, never in between the training's words
        self.staging = staging
        self.gate = StepGate()
        self.overlap = False
        self.store: Optional[Store] = None

    def watch_optimizers(self) -> None:
        """Nothing to do: the tensors are copied before ``take`` returns."""

    def take(self, header: Dict[str, Any], stage: bool) -> Pending:
        """Begin the save on all ranks together; the files are written behind, or at once above the staging's cap."""
        across = self._across()
        size = _local_bytes(across)
        rest = dict(header, ranks=per_rank.gather(self.parts, self.ranks))
        others = {k: v for k, v in self.parts.items() if k not in ACROSS and k != "loader"}
        rest.update(on_cpu(map_tensors(state.capture(others, with_rng=False), lambda _where, t: t.clone())))
        rest["across"] = sorted(across)
        writing, error = None, None
        if self.store is not None:
            try:
                writing = self.store.begin(header["step"], size * self.ranks.world, 2 * self.ranks.world + 4)
            except (CheckpointError, OSError) as caught:
                error = caught
        path = self.ranks.share(writing.path if writing is not None else "")
        if not path:
            raise (
                error if error is not None else CheckpointError("rank 0 could not begin a save", "Nothing was written.")
            )
        whole = not self.ranks.most([int(not stage or not self.staging.fits(size))])[0]
        shards = os.path.join(path, SHARDS)
        try:
            if whole and self.ranks.world > 1:
                future = dcp.async_save(across, checkpoint_id=shards, process_group=self.behind.group)
                self.staging.bytes = max(self.staging.bytes, size)
                return Pending(path, writing, size, future, rest)
            dcp.save(across, checkpoint_id=shards, process_group=self.ranks.group)
        except BaseException:
            if writing is not None:
                writing.abandon()
            raise
        return Pending(path, writing, size, None, rest)

    def _across(self) -> Dict[str, Any]:
        found: Dict[str, Any] = {"model": states.get_model_state_dict(self.parts["model"])}
        if self.parts.get("optimizer") is not None:
            found["optimizer"] = states.get_optimizer_state_dict(self.parts["model"], self.parts["optimizer"])
        if self.parts.get("ema") is not None:
            found["ema"] = states.get_model_state_dict(self.parts["ema"])
        return found

    def commit(self, store: Optional[Store], pending: Pending, about: Dict[str, Any]) -> Optional[Saved]:
        """Wait for every rank's files and publish; None on the other ranks. Raises on all ranks if one failed."""
        failed: Optional[BaseException] = None
        entries: List[Tuple[str, int, str]] = []
        try:
            if pending.future is not None:
                pending.future.result()
            entries = [tuple(one) for one in self._adopt(pending)]
        except Exception as error:  # told to the others first, then raised
            failed = error
        gathered = self.behind.gather((entries, "" if failed is None else repr(failed)))
        saved: Optional[Saved] = None
        word = ""
        if store is not None and pending.writing is not None and gathered is not None:
            word = "; ".join("rank %d: %s" % (r, why) for r, (_files, why) in enumerate(gathered) if why)
            try:
                if not word:
                    for files, _why in gathered:
                        pending.writing.include(files)
                    with pending.writing.open(STATE) as file:
                        torch_zip.write(file, pending.rest)
                    options = {k: v for k, v in about.items() if k != "step"}
                    saved = store.publish(pending.writing, kind=self.kind, **options)
            except Exception as error:  # likewise
                failed, word = error, repr(error)
            if saved is None:
                pending.writing.abandon()
        word = self.behind.share(word)
        if failed is not None:
            raise failed
        if word:
            raise CheckpointError("the sharded save was given up: %s" % word, "The checkpoint before it stands.")
        return saved

    def _adopt(self, pending: Pending) -> Any:
        """Digest and fsync the files that this rank wrote."""
        writing = Writing.join(pending.path)
        own = "__%d_" % self.ranks.rank
        for name in sorted(os.listdir(os.path.join(pending.path, SHARDS))):
            if name.startswith(own) or (self.ranks.first and not name.startswith("__")):
                yield writing.adopt("%s/%s" % (SHARDS, name))

    def read(self, saved: Saved) -> Any:
        """Load what is the same everywhere, and the list of tensors. Raises Damaged."""
        path = os.path.join(saved.path, STATE)
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
            path = os.path.join(saved.path, SHARDS)
            dcp.FileSystemReader(path).read_metadata()
        except MemoryError:
            raise  # says nothing about the file
        except Exception as error:  # torch raises what its readers raise
            raise Damaged(path, "it cannot be loaded: %s" % (str(error).splitlines() or [type(error).__name__])[0])
        return found

    def state_for(self, saved: Saved, loaded: Any) -> Any:
        """Return on every rank what rank 0 loaded."""
        return self.ranks.share(loaded)

    def restore(self, saved: Any, allow: Sequence[str], source: str) -> List[str]:
        """Load this rank's parts and put them back, after everything was compared."""
        if "across" not in saved:
            raise Mismatch(source, [("kind", "full", "sharded")])
        reader = dcp.FileSystemReader(os.path.join(source, SHARDS))
        across = self._across()
        rows = [row for row in _compare(reader.read_metadata().state_dict_metadata, across, saved["across"])]
        if [row for row in rows if not state.allowed(row[0], allow)]:
            raise Mismatch(source, rows)
        mine, said = per_rank.mine(saved, self.ranks)
        others = {k: v for k, v in self.parts.items() if k not in ACROSS}
        wrong = [row for row in state.compare(mine, others) if not state.allowed(row[0], allow)]
        if wrong:
            raise Mismatch(source, wrong)
        across = {k: v for k, v in across.items() if k in saved["across"]}
        dcp.load(across, storage_reader=reader, process_group=self.ranks.group)
        states.set_model_state_dict(self.parts["model"], across["model"])
        if "optimizer" in across:
            states.set_optimizer_state_dict(self.parts["model"], self.parts["optimizer"], across["optimizer"])
        if "ema" in across:
            states.set_model_state_dict(self.parts["ema"], across["ema"])
        return said + state.restore(mine, others, allow, source=source)


def _compare(known: Dict[str, Any], across: Dict[str, Any], parts: Sequence[str]) -> List[state.Row]:
    """Return what differs between the saved tensors of model and EMA, and those here."""
    rows: List[state.Row] = []
    for name in ACROSS:
        if (name in across) != (name in parts):
            rows.append((name, "there" if name in parts else "-", "there" if name in across else "-"))
    for name in ("model", "ema"):
        if name not in across or name not in parts:
            continue
        here = {"%s.%s" % (name, k): list(v.size()) for k, v in across[name].items() if isinstance(v, torch.Tensor)}
        there = {k: list(one.size) for k, one in known.items() if k.startswith(name + ".") and hasattr(one, "size")}
        for key in list(there) + [k for k in here if k not in there]:
            if here.get(key) != there.get(key):
                rows.append((key, str(there.get(key, "-")), str(here.get(key, "-"))))
    return rows


def _local_bytes(tree: Any) -> int:
    """Return the bytes of what lies in this process."""
    if isinstance(tree, torch.Tensor):
        local = tree.to_local() if hasattr(tree, "to_local") else tree
        return int(local.numel() * local.element_size())
    if isinstance(tree, dict):
        return sum(_local_bytes(v) for v in tree.values())
    if isinstance(tree, (list, tuple)):
        return sum(_local_bytes(v) for v in tree)
    return 0
