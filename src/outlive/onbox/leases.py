"""Leases: what a pull reads is held against pruning, for a bounded time, also when the client dies."""

import errno
import fcntl
import json
import os
from contextlib import contextmanager
from typing import Iterator, List

from outlive.wire.clock import boot_s
from outlive.wire.names import RunFiles

LEASE_S = 600.0
NO_WRITES = (errno.EROFS, errno.EIO, errno.ENOSPC, errno.EDQUOT)


@contextmanager
def leases_lock(run: RunFiles) -> Iterator[None]:
    """Who looks at what stands and then holds it, or looks at what is held and then removes it, does so alone."""
    try:
        fd = os.open(run.leases, os.O_RDONLY)
    except FileNotFoundError:
        yield  # no run of ours, or one that is being deleted
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError:
            pass  # a file system without locks: the moment between look and lease stays open there
        yield
    finally:
        os.close(fd)


def lease(run: RunFiles, machine: str, name: str, paths: List[str], seconds: float = LEASE_S) -> None:
    """Hold paths against pruning for a bounded time, renewed by the pull that needs them.

    A disk that takes no writes holds nothing: that must not keep anybody from reading what is on it.
    """
    data = {"machine": machine, "until_b": boot_s() + seconds, "paths": paths}
    try:
        os.makedirs(run.leases, exist_ok=True)
        aside = "%s.%d.part" % (_file(run, name), os.getpid())
        with open(aside, "wb") as out:
            out.write(json.dumps(data).encode("utf-8"))
        os.replace(aside, _file(run, name))  # not waited for: a power cut ends the pull and all that it held
    except OSError as error:
        if error.errno not in NO_WRITES:
            raise


def release(run: RunFiles, name: str) -> None:
    """Let go; fine when nothing is held."""
    try:
        os.unlink(_file(run, name))
    except OSError as error:
        if error.errno not in NO_WRITES + (errno.ENOENT,):
            raise


def _file(run: RunFiles, name: str) -> str:
    return os.path.join(run.leases, os.path.basename(name) + ".json")
