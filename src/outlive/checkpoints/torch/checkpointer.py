"""The face of it all: resume, maybe_save, save, close. docs/guides/checkpoints.md shows how it is used."""

import os
import signal
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from outlive.checkpoints.cadence import Interval, cadence_from_env
from outlive.checkpoints.errors import CheckpointError, Damaged, DurableUnavailable
from outlive.checkpoints.grace import flush_decision, grace_from_env
from outlive.checkpoints.record import refuse_changed_config
from outlive.checkpoints.retention import Keep
from outlive.checkpoints.store import Saved, Store
from outlive.checkpoints.torch.plain import plain
from outlive.checkpoints.torch.ranks import Ranks
from outlive.checkpoints.torch.signals import Signals
from outlive.checkpoints.torch.snapshot import Staging, Torn
from outlive.checkpoints.torch.whole import Pending, Whole, made_by
from outlive.checkpoints.torch.writer import Writer


class Cost(NamedTuple):
    """What one save took. ``durable_s`` is 0 while it is being written."""

    step: int
    bytes: int
    stall_s: float
    """How long the training thread stood still, in save and before the optimizer's next step."""
    durable_s: float
    """From the call until the checkpoint was committed."""
    staged: bool


class Checkpointer:
    """Saves and resumes a training. The directory is locked for as long as this object is open.

    Everything the next step depends on belongs into the parts: each is an object with ``state_dict`` and
    ``load_state_dict`` (or a list or dict of such), ``extra`` and ``ema`` may also be a dict of plain values and
    tensors, which is filled in place at resume.

    ``config``: plain values that should not change between two starts. ``every_s``, ``every_steps``, ``milestones``:
    when to save; without the first two the interval follows from the cost of a save and the platform's interruptions.
    ``keep``: retention. ``durable``: a path or ``rclone:remote:path`` that gets a copy of each save; ``mount``: what
    must be mounted there. ``asynchronous=False`` writes before ``save`` returns. ``overlap=False`` copies all tensors
    inside ``save`` instead of beside the next forward pass. ``staging_bytes`` caps the host memory of that copy; a
    bigger state is written synchronously. ``load_every``: each so many saves one is loaded back, not only compared.
    ``say`` gets the sentences for people; by default they go to stderr.
    """

    def __init__(
        self,
        directory: str,
        model: Any = None,
        optimizer: Any = None,
        scheduler: Any = None,
        scaler: Any = None,
        loader: Any = None,
        ema: Any = None,
        extra: Any = None,
        config: Optional[Dict[str, Any]] = None,
        every_s: Optional[float] = None,
        every_steps: Optional[int] = None,
        milestones: Sequence[int] = (),
        mtbf_s: Optional[float] = None,
        keep: Optional[Keep] = None,
        durable: Optional[str] = None,
        mount: Optional[str] = None,
        durable_keep: Optional[Keep] = None,
        asynchronous: bool = True,
        overlap: bool = True,
        staging_bytes: Optional[int] = None,
        load_every: int = 10,
        signals: Sequence[int] = (signal.SIGTERM, signal.SIGUSR1),
        fsync: bool = True,
        say: Optional[Callable[[str], None]] = None,
    ) -> None:
        self.directory = os.path.abspath(directory)
        self.config = plain(config, "config") if config is not None else None
        self.asynchronous = asynchronous
        self.load_every = load_every
        self.step = 0
        self.epoch: Optional[float] = None
        self.tokens: Optional[int] = None
        self.costs: List[Cost] = []
        """The newest hundred saves."""
        self._say = say if say is not None else to_stderr
        self._ranks = Ranks()
        parts = dict(
            model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, loader=loader, ema=ema, extra=extra
        )
        self._engine = _engine(parts, self._ranks, Staging(staging_bytes))
        workers = self._ranks.world // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
        self._cadence = cadence_from_env(os.environ, every_steps, every_s, milestones, mtbf_s, max(1, workers))
        self._writer = Writer()
        self._copier = Writer()
        self._waited_s = 0.0
        self._again = ""
        self._said_synchronous = False
        self._closed = False
        self._store: Optional[Store] = None
        if self._ranks.first:
            store = Store(self.directory, keep, durable, mount, durable_keep, fsync)
            self._agreed(store.open)
            self._store = self._engine.store = store
        else:
            self._agreed(None)
        # last: what fails above leaves no hook and no handler behind
        if asynchronous and overlap:
            self._engine.watch_optimizers()
        self._signals = Signals(signals)

    # ---- resuming ----

    def resume(self, allow_restart: bool = False, allow_changed: Sequence[str] = ()) -> int:
        """Load the newest good checkpoint and return its step; 0 only if none was ever recorded.

        Damaged ones are set aside and named. Raises NoGoodCheckpoint when some were recorded and none is good
        (``allow_restart`` begins again), Mismatch when keys or shapes differ and ConfigChanged when the configuration
        does (``allow_changed`` lists names that may), DurableUnavailable and what the disk says.
        """
        self._engine.gate.wait()
        self._writer.wait()
        found: List[Any] = [None, None]

        def look() -> None:
            if self._store is not None:
                found[0] = self._find(self._store, allow_restart, found)

        self._agreed(look)
        saved: Optional[Saved] = self._ranks.share(found[0])
        if saved is None:
            self._cadence.start(0, time.monotonic())
            return 0
        if self.config is not None:
            refuse_changed_config(saved.record.config.get("values") or {}, self.config, allow_changed)
        said = self._engine.restore(self._engine.state_for(saved, found[1]), allow_changed, saved.path)
        for line in said:
            self._tell(line)
        record = saved.record
        self.step, self.epoch, self.tokens = record.step, record.epoch, record.tokens
        self._cadence.start(record.step, time.monotonic())
        self._tell("resumed from %s (step %d)" % (saved.path, record.step))
        return record.step

    def _find(self, store: Store, allow_restart: bool, found: List[Any]) -> Optional[Saved]:
        def loads(saved: Saved) -> str:
            try:
                found[1] = self._engine.read(saved)
            except Damaged as error:
                return error.why
            return ""

        saved = store.newest_good(allow_restart=allow_restart, check=loads)
        for note in store.notes:
            self._tell(note)
        return saved

    # ---- saving ----

    def maybe_save(
        self,
        step: int,
        metrics: Optional[Dict[str, Any]] = None,
        epoch: Optional[float] = None,
        tokens: Optional[int] = None,
    ) -> str:
        """Call this after each step with the number of steps done. Returns why it saved, or "".

        Raises what went wrong in the writer since the last call. After SIGTERM it flushes once, if the grace allows,
        and then ends the process as the signal would have.
        """
        now = time.monotonic()
        reason = self._again or self._cadence.due(step, now)
        self._cadence.step_done(step, now)
        if reason and reason != "milestone" and self._writer.busy:
            reason = ""  # the one before is still being written; it stays due
        wanted, milestone, signalled, broken = self._ranks.most(
            [int(bool(reason)), int(reason == "milestone"), self._signals.number, int(self._broken())]
        )
        if broken:
            self._raise_together()
        if signalled:
            return self._flush(signalled, step, metrics, epoch, tokens)
        if not wanted:
            return ""
        self.save(step, metrics, epoch, tokens, milestone=bool(milestone))
        return reason or "another rank"

    def save(
        self,
        step: int,
        metrics: Optional[Dict[str, Any]] = None,
        epoch: Optional[float] = None,
        tokens: Optional[int] = None,
        milestone: bool = False,
        wait: bool = False,
    ) -> None:
        """Save now, every rank together. With ``wait`` it is committed, verified and copied when this returns.

        Waits first for the save before. Raises what went wrong in that one.
        """
        begun = time.monotonic()
        self._writer.wait()
        self.step, self.epoch, self.tokens = step, epoch, tokens
        self._again = ""
        about: Dict[str, Any] = dict(
            step=step,
            epoch=epoch,
            tokens=tokens,
            metrics=metrics,
            made_by=made_by(self._ranks),
            config=self.config,
            milestone=milestone,
        )
        header = {"step": step, "epoch": epoch, "tokens": tokens, "config": self.config}
        pending = self._engine.take(header, self.asynchronous)
        if pending.staged:
            self._writer.submit(lambda: self._write(pending, about, begun))
        else:
            if self.asynchronous and pending.bytes and not self._said_synchronous:
                self._said_synchronous = True
                self._tell(
                    "the state has %d MB and the staging memory is capped at %d MB: saves are synchronous"
                    % (pending.bytes >> 20, self._engine.staging.limit() >> 20)
                )
            self._write(pending, about, begun)
        now = time.monotonic()
        waited, self._waited_s = self._engine.gate.waited_s - self._waited_s, self._engine.gate.waited_s
        # the wait before the optimizer's step is known when that is over: the one of the save before is counted here
        self._cadence.saved(step, now, now - begun + waited)
        self.costs = (self.costs + [Cost(step, pending.bytes, now - begun, 0.0, pending.staged)])[-100:]
        if wait:
            self.wait()

    def wait(self) -> None:
        """Return when nothing is in flight, neither a save nor its copy. Raises what went wrong."""
        self._writer.wait()
        self._copier.wait()

    def close(self) -> None:
        """Commit what is in flight, bring the newest to the durable place, give the directory back."""
        if self._closed:
            return
        self._closed = True
        try:
            self._engine.gate.close()
            self._writer.wait()
            self._copier.wait()
            self._copy_newest()
        finally:
            self._signals.close()
            if self._store is not None:
                self._store.close()

    def __enter__(self) -> "Checkpointer":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except (CheckpointError, OSError) as second:
            self._tell("while closing: %s" % second)  # the error that is on its way says more

    # ---- knowing ----

    @property
    def interval(self) -> Interval:
        """What ``auto`` would choose now, and from which figures."""
        return self._cadence.interval()

    @property
    def stopping(self) -> int:
        """The signal that came, 0 for none; the next ``maybe_save`` deals with it."""
        return self._signals.number

    @property
    def staging_bytes(self) -> int:
        """Host memory that snapshots hold."""
        return int(self._engine.staging.bytes)

    @property
    def stalled_s(self) -> float:
        """Seconds that all saves together kept the training thread, waits before optimizer steps included."""
        return sum(cost.stall_s for cost in self.costs) + float(self._engine.gate.waited_s)

    # ---- beside the training ----

    def _write(self, pending: Pending, about: Dict[str, Any], begun: float) -> None:
        try:
            pending.finish()
        except Torn as torn:
            self._engine.overlap = False
            self._again = "torn"
            self._tell(
                "%s was changed by something other than the optimizer while it was copied; that snapshot of step %d "
                "was thrown away, the next step saves again, and from now on everything is copied at once"
                % (torn, about["step"])
            )
            return
        saved = self._engine.commit(self._store, pending, about)
        if saved is None or self._store is None:
            return
        durable_s = time.monotonic() - begun
        for at in range(len(self.costs) - 1, -1, -1):
            if self.costs[at].step == about["step"]:
                self.costs[at] = self.costs[at]._replace(durable_s=durable_s)
                break
        self._prove(self._store, saved)
        if self._store.durable is None:
            self._store.prune()
        elif not self._copier.busy:
            self._copier.submit(self._copy_newest)

    def _prove(self, store: Store, saved: Saved) -> None:
        verdict = store.verify(saved)
        why = "" if verdict.ok is not False else verdict.why
        if not why and self.load_every and saved.record.seq % self.load_every == 0:
            try:
                self._engine.read(saved)
                store.mark(saved, "loaded", True)
            except Damaged as error:
                why = error.why
        if why:
            store.reject(saved, why)
            self._again = "damaged"
            self._tell("%s was read back and is damaged: %s; the next step saves again" % (saved.path, why))

    def _copy_newest(self) -> None:
        store = self._store
        if store is None or store.durable is None:
            return
        for saved in store.uncopied()[:1]:
            try:
                store.copy_out(saved)
            except (DurableUnavailable, Damaged) as error:
                self._tell(str(error))
        store.prune()  # not before: what is being copied must stay

    # ---- signals ----

    def _flush(
        self,
        number: int,
        step: int,
        metrics: Optional[Dict[str, Any]],
        epoch: Optional[float],
        tokens: Optional[int],
    ) -> str:
        since_s = time.monotonic() - self._signals.at_s if self._signals.at_s is not None else 0.0
        measured = [cost.durable_s for cost in self.costs if cost.durable_s]
        grace_s = grace_from_env(os.environ) if number == signal.SIGTERM else None
        decision = flush_decision(grace_s, max(measured[-3:]) if measured else None, since_s)
        name = signal.Signals(number).name
        save = bool(self._ranks.most([int(decision.save or number != signal.SIGTERM)])[0])
        self._tell("%s: %s" % (name, decision.why if number == signal.SIGTERM else "saving at step %d" % step))
        if save:
            self.save(step, metrics, epoch, tokens)
            self._writer.wait()
        self._signals.take()
        if number == signal.SIGTERM:
            self._signals.pass_on(number)
        return name if save else ""

    # ---- agreeing ----

    def _broken(self) -> bool:
        return self._writer.failed or self._copier.failed

    def _raise_together(self) -> None:
        self._writer.check()
        self._copier.check()
        raise CheckpointError(
            "another rank could not save", "The newest committed checkpoint stands.", "Read that rank's error."
        )

    def _agreed(self, act: Optional[Callable[[], Any]]) -> None:
        """Let every rank do something; where one fails, all raise."""
        failed: Optional[BaseException] = None
        try:
            if act is not None:
                act()
        except Exception as error:  # raised below, after the others were told
            failed = error
        if self._ranks.most([int(failed is not None)])[0]:
            if failed is not None:
                raise failed
            self._raise_together()

    def _tell(self, line: str) -> None:
        if self._ranks.first:
            self._say(line)


def to_stderr(line: str) -> None:
    print("outlive: " + line, file=sys.stderr, flush=True)


def _engine(parts: Dict[str, Any], ranks: Ranks, staging: Staging) -> Any:
    if is_sharded(parts.get("model")):
        from outlive.checkpoints.torch.sharded import Sharded

        return Sharded(parts, ranks, staging)
    return Whole(parts, ranks, staging)


def is_sharded(model: Any) -> bool:
    """Whether a process holds only a part of the model: fully_shard or tensor parallel. Refuses the older FSDP."""
    import torch.nn

    for module in model.modules() if isinstance(model, torch.nn.Module) else ():
        if type(module).__name__ == "FullyShardedDataParallel":
            raise CheckpointError(
                "FullyShardedDataParallel cannot be saved here: its state does not load again on its own",
                "Nothing was changed.",
                "Use torch.distributed.fsdp.fully_shard, which replaced it.",
            )
        if any(hasattr(p, "device_mesh") and hasattr(p, "placements") for p in module.parameters(recurse=False)):
            return True
    return False
