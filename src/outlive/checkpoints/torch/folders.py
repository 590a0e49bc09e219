"""Checkpoints that a trainer writes in its own format, with our commit, digests, retention and durable copy."""

import os
import shutil
import signal
import time
from typing import Any, Callable, Dict, Optional, Sequence

from outlive.checkpoints.cadence import cadence_from_env
from outlive.checkpoints.commit import Writing
from outlive.checkpoints.errors import CheckpointError, Damaged, DurableUnavailable
from outlive.checkpoints.grace import flush_decision, grace_from_env
from outlive.checkpoints.retention import Keep
from outlive.checkpoints.store import Saved, Store
from outlive.checkpoints.torch.ranks import Ranks
from outlive.checkpoints.torch.signals import Signals
from outlive.checkpoints.torch.writer import Writer


class Folders:
    """Keeps what another saver writes. The saver runs in the training thread; all that follows goes on beside it.

    With several processes all of them call ``due``, ``save`` and ``resume_point`` together, and all see the directory.
    """

    def __init__(
        self,
        directory: str,
        every_s: Optional[float] = None,
        every_steps: Optional[int] = None,
        milestones: Sequence[int] = (),
        mtbf_s: Optional[float] = None,
        keep: Optional[Keep] = None,
        durable: Optional[str] = None,
        mount: Optional[str] = None,
        signals: Sequence[int] = (signal.SIGTERM, signal.SIGUSR1),
        made_by: Optional[Dict[str, Any]] = None,
    ) -> None:
        self.directory = os.path.abspath(directory)
        self.made_by = dict(made_by or {})
        self.ranks = Ranks()
        self.cadence = cadence_from_env(os.environ, every_steps, every_s, milestones, mtbf_s)
        self.writer = Writer()
        self.durable_s: Optional[float] = None
        self.store: Optional[Store] = None
        if self.ranks.first:
            self.store = Store(self.directory, keep, durable, mount).open()
        self.signals = Signals(signals)

    def resume_point(self, allow_restart: bool = False) -> Optional[Saved]:
        """Return the newest good checkpoint, verified; None if none was ever recorded. Raises NoGoodCheckpoint."""
        self.writer.wait()
        saved = self.store.newest_good(allow_restart=allow_restart) if self.store is not None else None
        for note in self.store.notes if self.store is not None else ():
            _tell(note)
        shared: Optional[Saved] = self.ranks.share(saved)
        self.cadence.start(shared.record.step if shared is not None else 0, time.monotonic())
        return shared

    def due(self, step: int) -> str:
        """Return why to save now: the cadence's word, or a signal's name. Raises what the last save ran into."""
        now = time.monotonic()
        reason = "" if self.writer.busy else self.cadence.due(step, now)
        self.cadence.step_done(step, now)
        wanted, signalled, broken = self.ranks.most([int(bool(reason)), self.signals.number, int(self.writer.failed)])
        if broken:
            self.writer.check()
            raise CheckpointError("rank 0 could not save", "The newest committed checkpoint stands.")
        if signalled:
            since = time.monotonic() - self.signals.at_s if self.signals.at_s is not None else 0.0
            fits = flush_decision(grace_from_env(os.environ), self.durable_s, since)
            if signalled != signal.SIGTERM:
                self.signals.take()
                return signal.Signals(signalled).name
            if self.ranks.most([int(fits.save)])[0]:
                return "SIGTERM"
            self.stop()
        return reason or ("another rank" if wanted else "")

    def save(self, step: int, write: Callable[[str], None], metrics: Optional[Dict[str, Any]] = None) -> None:
        """Let ``write(path)`` put its files into an empty directory, then commit that. Waits for the save before."""
        begun = time.monotonic()
        self.writer.wait()
        writing = self.store.begin(step) if self.store is not None else None
        path = self.ranks.share(writing.path if writing is not None else "")
        try:
            write(path)
        except BaseException:
            if writing is not None:
                writing.abandon()
            raise
        self.ranks.barrier()
        if writing is not None and self.store is not None:
            store, mine = self.store, writing
            self.writer.submit(lambda: self._commit(store, mine, metrics, begun))
        now = time.monotonic()
        self.cadence.saved(step, now, now - begun)

    def take_over(self, step: int, folder: str, metrics: Optional[Dict[str, Any]] = None) -> None:
        """Commit a folder that the trainer wrote itself; its files are moved, not copied."""

        def move(path: str) -> None:
            if self.ranks.first:
                for name in os.listdir(folder):
                    shutil.move(os.path.join(folder, name), os.path.join(path, name))
                shutil.rmtree(folder, ignore_errors=True)

        self.save(step, move, metrics)

    def _commit(self, store: Store, writing: Writing, metrics: Optional[Dict[str, Any]], begun: float) -> None:
        try:
            writing.adopt_all()
        except BaseException:
            writing.abandon()
            raise
        saved = store.publish(writing, kind="full", metrics=metrics, made_by=self.made_by)
        self.durable_s = time.monotonic() - begun
        verdict = store.verify(saved)
        if verdict.ok is False:
            store.reject(saved, verdict.why)
            _tell("%s was read back and is damaged: %s" % (saved.path, verdict.why))
        if store.durable is not None:
            for one in store.uncopied()[:1]:
                try:
                    store.copy_out(one)
                except (DurableUnavailable, Damaged) as error:
                    _tell(str(error))
        store.prune()

    def stop(self) -> None:
        """After SIGTERM and the save that ``due`` asked for: do what the signal would have done without us."""
        self.writer.wait()
        self.signals.take()
        self.signals.pass_on(signal.SIGTERM)

    def close(self) -> None:
        """Commit what is in flight and give the directory back. May be called twice."""
        try:
            self.writer.wait()
        finally:
            self.signals.close()
            if self.store is not None:
                self.store.close()


def _tell(line: str) -> None:
    from outlive.checkpoints.torch.checkpointer import to_stderr

    to_stderr(line)
