"""Every name that we write on a box, in one place. Who may delete each is in docs/design/on-disk.md."""

import errno
import os
import re
import time
from typing import TYPE_CHECKING, List, Optional

if TYPE_CHECKING:
    import random

DIR = ".outlive"
JOB_NAME = re.compile(r"^[a-z0-9][a-z0-9._-]{0,39}$")
RUN_ID = re.compile(r"^[a-z0-9][a-z0-9._-]{0,39}-[0-9]{6}-[a-z]{4}$")


class BoxFiles:
    """The names under ``<root>/.outlive``."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.dir = os.path.join(root, DIR)
        self.box_id = os.path.join(self.dir, "box-id")
        self.box = os.path.join(self.dir, "box.json")
        """What `up` recorded: environment of a login shell, interpreter, platform defaults, audit."""
        self.code = os.path.join(self.dir, "code")
        self.setup = os.path.join(self.dir, "setup")
        """One empty file per setup digest that succeeded on this box."""
        self.bin = os.path.join(self.dir, "bin")
        self.runs = os.path.join(self.dir, "runs")
        self.start_lock = os.path.join(self.dir, "start.lock")
        self.lease = os.path.join(self.dir, "lease.json")
        self.lease_journal = os.path.join(self.dir, "lease.jsonl")
        self.lease_lock = os.path.join(self.dir, "lease.lock")

    def run(self, run: str) -> "RunFiles":
        return RunFiles(os.path.join(self.runs, run))

    def run_ids(self) -> List[str]:
        """Return the ids of all runs on this box, oldest first."""
        try:
            names = os.listdir(self.runs)
        except FileNotFoundError:
            return []
        return sorted((n for n in names if RUN_ID.match(n)), key=lambda n: (n.rsplit("-", 2)[1], n))

    def interpreter_dir(self, python: str) -> str:
        """Return the directory where `python` and `python3` mean this interpreter."""
        import hashlib  # half of what `outlive ps` would pay for this module

        return os.path.join(self.bin, hashlib.sha256(python.encode("utf-8", "surrogateescape")).hexdigest()[:12])

    def train(self, digest: str) -> str:
        """Return the archive of what the work may import."""
        return os.path.join(self.dir, "train-%s.zip" % digest)

    def snapshot(self, digest: str) -> str:
        return os.path.join(self.code, digest + ".tar")


class RunFiles:
    """The names in one run's directory."""

    def __init__(self, directory: str) -> None:
        self.dir = directory
        self.id = os.path.basename(directory)
        self.spec = os.path.join(directory, "spec.json")
        self.journal = os.path.join(directory, "journal.jsonl")
        self.log = os.path.join(directory, "log")
        self.metrics = os.path.join(directory, "metrics.jsonl")
        self.samples = os.path.join(directory, "samples.jsonl")
        self.inbox = os.path.join(directory, "inbox")
        self.work = os.path.join(directory, "work")
        self.attempts = os.path.join(directory, "attempts")
        self.control = os.path.join(directory, "control")
        self.leases = os.path.join(directory, "leases")
        self.secrets = os.path.join(directory, "secrets.json")
        self.supervisor = os.path.join(directory, "supervisor")
        self.supervisor_lock = os.path.join(directory, "supervisor.lock")
        self.supervisor_err = os.path.join(directory, "supervisor.err")
        self.payload = os.path.join(directory, "payload")
        """A named pipe: secrets that arrive while a supervisor lives go through it, never into a file."""
        self.baseline = os.path.join(directory, "baseline.json")
        self.roster = os.path.join(directory, "roster.json")
        self.reserve = os.path.join(directory, "reserve")
        self.done = os.path.join(directory, "done")
        self.fence = os.path.join(directory, "fence.json")

    def attempt(self, number: int) -> "AttemptFiles":
        return AttemptFiles(os.path.join(self.attempts, str(number)))


class AttemptFiles:
    """The names in one attempt's directory."""

    def __init__(self, directory: str) -> None:
        self.dir = directory
        self.keeper = os.path.join(directory, "keeper")
        """``pid start_ticks`` of the keeper."""
        self.work = os.path.join(directory, "work.json")
        """Identity of the work's first process, written by the launcher just before it becomes the work."""
        self.exit_new = os.path.join(directory, "exit.new")
        self.exit = os.path.join(directory, "exit")
        self.beat = os.path.join(directory, "beat")
        """Written by the keeper every two seconds, for machines that share this directory and no process table."""
        self.keeper_err = os.path.join(directory, "keeper.err")


def new_run_id(job: str, wall_s: float, rng: Optional["random.Random"] = None) -> str:
    """Return ``<job>-<yymmdd>-<4 letters>``; uniqueness comes from the exclusive mkdir on the box."""
    if rng is None:
        import random

        rng = random.SystemRandom()
    letters = "".join(rng.choice("abcdefghijkmnopqrstuvwxyz") for _ in range(4))
    return "%s-%s-%s" % (job, time.strftime("%y%m%d", time.gmtime(wall_s)), letters)


def write_aside(path: str, data: bytes, mode: int = 0o600) -> None:
    """Publish ``data`` at ``path``: written aside, fsynced, renamed, directory fsynced."""
    aside = "%s.%d.part" % (path, os.getpid())
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    except OSError:
        os.close(fd)
        os.unlink(aside)
        raise
    os.close(fd)
    try:
        os.replace(aside, path)
    except OSError:
        os.unlink(aside)
        raise
    sync_directory(os.path.dirname(path))


def sync_files(paths: List[str]) -> None:
    """Make files and their names durable. Raises OSError when the disk could not take them."""
    if len(paths) > 8 and hasattr(os, "posix_fadvise"):
        for path in paths:  # all begin to be written, so that one wait serves for many
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EROFS, errno.EBADF, errno.ENOTSUP):
                raise  # the others are file systems that cannot, or need not
        finally:
            os.close(fd)
    for directory in sorted({os.path.dirname(path) for path in paths}):
        sync_directory(directory)


def sync_directory(path: str) -> None:
    """Make the names in a directory durable, where the file system can."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError:
        pass  # some network file systems refuse to fsync a directory; the tier's probe has recorded that
    finally:
        os.close(fd)
