"""How a storage tier behaves when something is committed there, tried out once in a corner of it."""

import os
from typing import Any, Callable, Dict, Optional

from outlive.probes.mounts import is_object_store, mount_of

QUESTIONS = (
    "rename_over",
    "rename_directory",
    "directory_fsync",
    "exclusive_create",
    "hard_links",
    "read_after_drop",
    "symlinks",
    "case_sensitive",
)
"""Keys of ``commit_behaviour`` that are True, False or None (could not be tried)."""


def commit_behaviour(dir: str) -> Dict[str, Any]:
    """Try out, in a directory of our own below ``dir``, what a commit there can rely on.

    Returns each of ``QUESTIONS`` as True, False or None, ``object_store`` by the mount's type, and
    ``why`` (question to reason, for False and None). Writes less than 100 kB, removes it again, and
    touches nothing else. May block as long as the file system does.
    """
    import tempfile

    result: Dict[str, Any] = {name: None for name in QUESTIONS}
    why: Dict[str, str] = {}
    result["why"] = why
    mount = mount_of(dir)
    result["object_store"] = None if mount is None else is_object_store(mount.fs_type)
    try:
        place = tempfile.mkdtemp(prefix=".outlive-probe-", dir=dir)
    except OSError as error:
        reason = "cannot write in %s: %s" % (dir, error.strerror or error)
        why.update((name, reason) for name in QUESTIONS)
        return result
    try:
        for name, question in _TRIALS.items():
            _ask(result, why, name, question, os.path.join(place, name))
    finally:
        leftover = _remove(place)
        if leftover:
            why["cleanup"] = leftover
    return result


def commit_mode(behaviour: Dict[str, Any]) -> str:
    """Return ``rename`` where a rename commits in one step and survives a crash, else ``marker``.

    ``marker`` (contents first, then a small file that names their digests) is right everywhere, so it
    is also the answer whenever something that rename needs is unknown.
    """
    needs = ("rename_over", "rename_directory", "directory_fsync")
    certain = all(behaviour.get(name) is True for name in needs)
    return "rename" if certain and behaviour.get("object_store") is False else "marker"


def _ask(result: Dict[str, Any], why: Dict[str, str], name: str, trial: Callable[[str], str], place: str) -> None:
    try:
        os.mkdir(place)
    except OSError as error:
        why[name] = "no room to try: %s" % (error.strerror or error)
        return
    try:
        reason: Optional[str] = trial(place)
    except _CannotTry as error:
        why[name] = str(error)
        return
    except OSError as error:
        import errno

        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE):
            # The disk's condition today, not the nature of the file system.
            why[name] = "could not be tried: %s" % (error.strerror or error)
            return
        reason = error.strerror or str(error)
    result[name] = not reason
    if reason:
        why[name] = reason


class _CannotTry(Exception):
    """This machine has no way to ask."""


def _rename_over(place: str) -> str:
    old, new = os.path.join(place, "kept"), os.path.join(place, "kept.new")
    _write(old, b"old")
    _write(new, b"new")
    with open(old, "rb") as reader:
        os.rename(new, old)
        if _content(old) != b"new":
            return "the old content is still read after a rename over it"
        if os.path.exists(new):
            return "the source is still there after a rename"
        return "" if reader.read() == b"old" else "an open reader lost the old content"


def _rename_directory(place: str) -> str:
    source, target = os.path.join(place, "aside"), os.path.join(place, "final")
    os.mkdir(source)
    _write(os.path.join(source, "part"), b"part")
    os.rename(source, target)
    return "" if _content(os.path.join(target, "part")) == b"part" else "the content did not follow its directory"


def _directory_fsync(place: str) -> str:
    _write(os.path.join(place, "entry"), b"entry")
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    return ""


def _exclusive_create(place: str) -> str:
    path = os.path.join(place, "claim")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    os.close(os.open(path, flags, 0o600))
    try:
        os.close(os.open(path, flags, 0o600))
        return "a second exclusive create succeeded"
    except FileExistsError:
        pass
    os.mkdir(path + ".dir")
    try:
        os.mkdir(path + ".dir")
        return "a second mkdir of the same name succeeded"
    except FileExistsError:
        return ""


def _hard_links(place: str) -> str:
    first, second = os.path.join(place, "first"), os.path.join(place, "second")
    _write(first, b"one")
    os.link(first, second)
    return "" if os.path.samefile(first, second) else "a hard link is another file"


def _read_after_drop(place: str) -> str:
    if not hasattr(os, "posix_fadvise"):
        raise _CannotTry("this system cannot drop a file from its cache")
    path, content = os.path.join(place, "data"), os.urandom(64 * 1024)
    _write(path, content)
    handle = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        taken = b""
        while True:
            part = os.read(handle, 1 << 20)
            if not part:
                break
            taken += part
    finally:
        os.close(handle)
    return "" if taken == content else "other bytes came back after the cache was dropped"


def _symlinks(place: str) -> str:
    path = os.path.join(place, "link")
    os.symlink("target/that is/not there", path)
    return "" if os.readlink(path) == "target/that is/not there" else "a link names another target"


def _case_sensitive(place: str) -> str:
    _write(os.path.join(place, "Case"), b"")
    return "names differing in case are one file" if os.path.exists(os.path.join(place, "cASE")) else ""


_TRIALS: Dict[str, Callable[[str], str]] = {
    "rename_over": _rename_over,
    "rename_directory": _rename_directory,
    "directory_fsync": _directory_fsync,
    "exclusive_create": _exclusive_create,
    "hard_links": _hard_links,
    "read_after_drop": _read_after_drop,
    "symlinks": _symlinks,
    "case_sensitive": _case_sensitive,
}


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _remove(place: str) -> str:
    import shutil

    shutil.rmtree(place, ignore_errors=True)
    return "left behind: %s" % place if os.path.lexists(place) else ""
