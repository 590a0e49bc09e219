"""Checkpoints of a run: seeing them committed, proving them early, and pruning them with care.

There is exactly one pruner for a directory. Where the work keeps it with `outlive.checkpoints`, that is the work: here
its checkpoints are proved and copied, and held by a lease until they are; nothing of them is removed. Elsewhere it
is this supervisor.
"""

import os
import re
import shutil
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple

from outlive.checkpoints.errors import CheckpointError
from outlive.checkpoints.record import INDEX, LOCK, RECORD, Record, read_record
from outlive.onbox.children import Crew
from outlive.onbox.context import Context, read_json
from outlive.onbox.leases import LEASE_S, lease, leases_lock, release
from outlive.wire.clock import boot_s
from outlive.wire.values import REFUTING

TEMPORARY = re.compile(r"(^\.)|(\.(tmp|temp|part|partial|new|lock|incomplete)([-.~].*)?$)|(~$)|(^tmp)", re.I)
STEP = re.compile(r"(\d{1,12})(?!.*\d)")
BEST = re.compile(r"best", re.I)
TENSORS_UP_TO_BYTES = 1 << 30
"""Above this size values are scanned once at the end instead of at every save."""


PROVE_TRIES = 4
ASIDE = ".outlive-pruned-"
LEASE = "supervisor"
"""Our own hold, which the work's retention respects for as long as a lease lasts."""


class Keep:
    """Watches ``artifacts.checkpoints``. ``tick`` is cheap; digests run in a child."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.crew = Crew(1)
        self.next_b = 0.0
        self.seen: Dict[str, Tuple[int, int, int]] = {}
        self.proved: Dict[str, Tuple[int, int, int]] = {}
        self.advanced_b: Optional[float] = None
        self.newest_metric: Dict[str, Any] = {}
        self.tries: Dict[str, int] = {}
        self.retry_b: Dict[str, float] = {}
        self.frozen: Callable[[], bool] = lambda: False
        """Set by the supervisor: whether the run's end names its checkpoints, so that none may go."""
        self.held: Optional[List[str]] = None
        self.held_b = 0.0

    @property
    def directory(self) -> str:
        declared: str = self.context.spec["artifacts"]["checkpoints"]
        return os.path.join(self.context.run.work, declared) if declared else ""

    @property
    def theirs(self) -> bool:
        """Whether the work keeps the directory itself, with our library: then it prunes and we do not."""
        return kept_by_the_work(self.directory)

    def tick(self) -> None:
        self.crew.tick()
        if not self.directory or boot_s() < self.next_b:
            return
        self.next_b = boot_s() + float(self.context.limits["scan_s"])
        self.scan()
        if self.theirs:
            self.hold()
        elif not self.frozen():
            self.prune()

    def retain(self) -> None:
        """Prune now, where that is ours to do."""
        if self.directory and not self.theirs:
            self.prune()

    def scan(self, still: bool = False) -> bool:
        """Look at each child of the directory; what stood still since the last look is proved.

        With ``still`` the work is dead and one look is enough. Returns whether everything there is judged.
        """
        try:
            names = sorted(os.listdir(self.directory))
        except FileNotFoundError:
            names = []
        except OSError:
            return True  # unreadable is unknown: nothing is called gone, and nobody can wait for it
        judged = True
        theirs = self.theirs
        for name in names:
            full = os.path.join(self.directory, name)
            if theirs and not os.path.exists(os.path.join(full, RECORD)) and not name.startswith("step-"):
                continue  # the index, the lock, what else the work put there
            if name.startswith(ASIDE):
                _discard(full)  # a pruning that was cut short after its tombstone
                continue
            if TEMPORARY.search(name):
                continue
            path = os.path.relpath(full, self.context.run.work)
            signature = _signature(full)
            if signature is None or signature[0] == 0:
                continue
            moved = self.seen.get(path) != signature
            if moved:
                self.seen[path] = signature
                self.advanced_b = boot_s()
            if self.proved.get(path) == signature or self._known(path, signature):
                continue
            judged = False
            if (still or not moved) and boot_s() >= self.retry_b.get(path, 0.0):
                self._prove(path, signature)
        for path in list(self.context.view.checkpoints):
            if not os.path.lexists(os.path.join(self.context.run.work, path)):
                # the work's own retention, or somebody's hand
                self.context.record("checkpoint_gone", path=path)
                self.seen.pop(path, None)
                self.proved.pop(path, None)
        return judged and self.crew.idle

    def settle(self) -> bool:
        """Judge what the dead work left. Returns True when nothing is left to judge; call it until then."""
        self.crew.tick()
        return not self.directory or self.scan(still=True)

    def _known(self, path: str, signature: Tuple[int, int, int]) -> bool:
        for table in (self.context.view.checkpoints, self.context.view.bad_checkpoints):
            record = table.get(path)
            if record is not None and tuple(record.get("signature", ())) == signature:
                self.proved[path] = signature
                return True
        return False

    def _prove(self, path: str, signature: Tuple[int, int, int]) -> None:
        level = "tensors" if signature[1] <= TENSORS_UP_TO_BYTES else "structure"
        metric = dict(self.newest_metric)

        def done(answer: Dict[str, Any]) -> None:
            now = _signature(os.path.join(self.context.run.work, path))
            if now != signature:
                return  # it moved under the child's hands; the next quiet look proves it again
            if "error" in answer:
                # a check that could not be made says nothing about the bytes: try again, ever more rarely
                tries = self.tries[path] = self.tries.get(path, 0) + 1
                self.retry_b[path] = boot_s() + min(300.0, float(self.context.limits["scan_s"]) * 2**tries)
                if tries >= PROVE_TRIES:
                    self.proved[path] = signature
                    why = "it could not be checked: " + answer["error"]
                    self.context.record("checkpoint_bad", path=path, why=why, signature=list(signature))
                return
            self.tries.pop(path, None)
            self.proved[path] = signature
            for proof in answer["proofs"]:
                self.context.record("proof", sync=False, proof=proof)
            record, why = self._own_record(path, answer["entries"])
            refuted = [why] if why else []
            refuted += [
                "%s: %s" % (proof["path"], finding["text"])
                for proof in answer["proofs"]
                for finding in proof["findings"]
                if finding["code"] in REFUTING
            ]
            if refuted:
                self.context.record(
                    "checkpoint_bad", path=path, why="; ".join(refuted)[:500], signature=list(signature)
                )
                return
            twin = twin_of(path, answer["sha256"], self.context.view.checkpoints.values())
            if twin:  # whole, so it is not refuted; but whoever resumes from it may find himself at another step
                self.context.trouble(
                    "checkpoints", "%s has the very bytes of %s: one of them is not the step of its name" % (path, twin)
                )
            self.context.record(
                "checkpoint",
                path=path,
                files=answer["entries"],
                sha256=answer["sha256"],
                bytes=answer["bytes"],
                step=step_of(path, metric) if record is None else record.step,
                metric=dict(record.metrics)
                if record is not None
                else {k: v for k, v in metric.items() if isinstance(v, (int, float, str))},
                level=answer["level"],
                mtime_ns=signature[2],
                signature=list(signature),
            )

        request = {"work": self.context.run.work, "path": path, "level": level}
        self.crew.add(path, "prove", request, 60.0 + signature[1] / 5e6, done)

    def _own_record(self, path: str, entries: List[Dict[str, Any]]) -> Tuple[Optional[Record], str]:
        """Return (record, what contradicts it) of a checkpoint that the work wrote with our library."""
        full = os.path.join(self.context.run.work, path)
        if not os.path.isdir(full) or not (self.theirs or os.path.exists(os.path.join(full, RECORD))):
            return None, ""
        try:
            record = read_record(full)
        except CheckpointError as error:
            return None, str(getattr(error, "why", error))
        found = {os.path.relpath(e["path"], path): e["sha256"] for e in entries}
        wrong = [f.path for f in record.files if found.get(f.path) != f.sha256]
        return record, "%s does not have the digest it was saved with" % wrong[0] if wrong else ""

    def hold(self) -> None:
        """Hold what is not proved, or not copied where copies are wanted, against the work's own retention."""
        copied = self._copied() if self._lagging_matters() else None
        held = []
        for path in self.seen:
            checkpoint = self.context.view.checkpoints.get(path)
            if checkpoint is None:
                waits = path not in self.context.view.bad_checkpoints
            else:
                waits = copied is not None and any(f["sha256"] not in copied for f in checkpoint["files"])
            if waits:
                held.append(path)
        now = sorted(held)
        if now == self.held and boot_s() < self.held_b + LEASE_S / 4:
            return
        try:
            with leases_lock(self.context.run):
                if now:
                    lease(self.context.run, self.context.machine, LEASE, now)
                else:
                    release(self.context.run, LEASE)
            self.held, self.held_b = now, boot_s()
        except OSError as error:
            self.context.trouble("lease", "checkpoints could not be held: %s" % error.strerror)

    def prune(self) -> None:
        """Remove proved checkpoints that no rule keeps. Nothing is pruned unless the job asked for retention."""
        rule = self.context.spec["artifacts"]["keep"]
        if not rule:
            return
        # a pull that takes its lease now waits until the names are gone, and sees that they are
        with leases_lock(self.context.run):
            remove = choose_pruned(
                list(self.context.view.checkpoints.values()),
                rule,
                self._leased(),
                self._copied() if self._lagging_matters() else None,
            )
            remove = [path for path in remove if not kept_by_the_work(os.path.join(self.context.run.work, path))]
            if not remove:
                return
            # the tombstone is written first: a crash in between must not look like a loss
            self.context.record("pruned", paths=remove)
            for path in remove:
                _remove(os.path.join(self.context.run.work, path))
                self.seen.pop(path, None)
                self.proved.pop(path, None)

    def _lagging_matters(self) -> bool:
        return str(self.context.spec["durable"]["to"]) not in ("none", "", "here")

    def _copied(self) -> Set[str]:
        return {c["sha256"] for c in self.context.view.copies}

    def _leased(self) -> Set[str]:
        """Paths that a running pull holds; a lease that ran out on this machine's boot clock is void."""
        held: Set[str] = set()
        try:
            names = os.listdir(self.context.run.leases)
        except FileNotFoundError:
            return held
        for name in names:
            lease = read_json(os.path.join(self.context.run.leases, name))
            if lease is None:
                continue
            if lease.get("machine") == self.context.machine and float(lease["until_b"]) > boot_s():
                for path in lease["paths"]:
                    # one file of a checkpoint directory holds the whole of it
                    while path:
                        held.add(path)
                        path = os.path.dirname(path)
            else:
                _remove(os.path.join(self.context.run.leases, name))
        return held


def kept_by_the_work(directory: str) -> bool:
    """Return whether a directory has its own pruner: a trainer that uses `outlive.checkpoints`."""
    return any(os.path.exists(os.path.join(directory, name)) for name in (INDEX, LOCK))


def choose_pruned(
    checkpoints: List[Dict[str, Any]], rule: Dict[str, Any], leased: Set[str], copied: Optional[Set[str]]
) -> List[str]:
    """Return the paths that the retention rule lets go; pure.

    ``rule``: ``latest`` (count), ``best`` (count, by ``val_loss`` else ``loss``), ``every_s``. Kept whatever
    the rule says: the newest, names with "best" in them, leased paths, and with ``copied`` given (a
    safe place is set) every checkpoint that has a file not copied yet.
    """
    if all(c.get("step") is not None for c in checkpoints):
        order = sorted(checkpoints, key=lambda c: (c["step"], c["mtime_ns"]))
    else:
        order = sorted(checkpoints, key=lambda c: c["mtime_ns"])  # as RunView.newest_checkpoint does
    keep: Set[str] = {c["path"] for c in order[-max(1, int(rule.get("latest", 1))) :]}
    if any(c.get("step") is None and "n" in c for c in order):
        # the last that was committed: a clock that was set back does not make it the oldest
        keep.add(max(order, key=lambda c: int(c.get("n", -1)))["path"])
    keep.update(c["path"] for c in order if BEST.search(os.path.basename(c["path"])))
    # a validation loss and a training loss do not compare
    name = "val_loss" if any(_score(c, "val_loss") is not None for c in order) else "loss"
    scored = [c for c in order if _score(c, name) is not None]
    scored.sort(key=lambda c: (_score(c, name), -c["mtime_ns"]))
    keep.update(c["path"] for c in scored[: int(rule.get("best", 0))])
    every_s = rule.get("every_s")
    if every_s:
        last_ns = None
        for checkpoint in order:
            if last_ns is None or checkpoint["mtime_ns"] - last_ns >= float(every_s) * 1e9:
                keep.add(checkpoint["path"])
                last_ns = checkpoint["mtime_ns"]
    keep.update(leased)
    if copied is not None:
        keep.update(c["path"] for c in order if any(f["sha256"] not in copied for f in c["files"]))
    return [c["path"] for c in order if c["path"] not in keep]


def _score(checkpoint: Dict[str, Any], name: str) -> Optional[float]:
    value = (checkpoint.get("metric") or {}).get(name)
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return number if number == number else None


def step_of(path: str, metric: Dict[str, Any]) -> Optional[int]:
    """Return the step in a checkpoint's name, else the last step that the log showed."""
    match = STEP.search(os.path.basename(path))
    if match:
        return int(match.group(1))
    step = metric.get("step")
    return int(step) if isinstance(step, int) else None


def twin_of(path: str, sha256: str, checkpoints: Iterable[Dict[str, Any]]) -> str:
    """Return the path of a checkpoint with the same bytes whose name differs in the step alone, "" if there is none.

    ``best.pt`` may well be ``step-40.pt`` once more; ``step-40.pt`` is not ``step-35.pt``.
    """
    shape, step = STEP.sub("#", os.path.basename(path)), STEP.search(os.path.basename(path))
    for other in checkpoints:
        name = os.path.basename(other["path"])
        found = STEP.search(name)
        if step and found and other["sha256"] == sha256 and STEP.sub("#", name) == shape:
            if int(found.group(1)) != int(step.group(1)):
                return str(other["path"])
    return ""


def _signature(path: str) -> Optional[Tuple[int, int, int]]:
    """Return (files, bytes, newest mtime in ns) below a path, or None when it cannot be read whole."""
    try:
        info = os.lstat(path)
        if not os.path.isdir(path) or os.path.islink(path):
            return (1, info.st_size, info.st_mtime_ns) if os.path.isfile(path) and not os.path.islink(path) else None
        files, size, newest = 0, 0, 0
        for folder, _dirs, names in os.walk(path):
            for name in names:
                if TEMPORARY.search(name):
                    return None  # a save is under way inside
                info = os.lstat(os.path.join(folder, name))
                files, size, newest = files + 1, size + info.st_size, max(newest, info.st_mtime_ns)
        return (files, size, newest)
    except OSError:
        return None


def _remove(path: str) -> None:
    """Remove a file or directory, first renamed aside so that nobody sees half of it."""
    aside = os.path.join(os.path.dirname(path), ASIDE + os.path.basename(path))
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return
    except OSError:
        aside = path  # something of that name is in the way: remove it where it is
    _discard(aside)


def _discard(path: str) -> None:
    """Remove a file or directory; what cannot be removed now is met again at the next scan."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        os.unlink(path)
    except OSError:
        pass
