"""What is there: walk a work directory, match it with the roster, infer what a run made.

Paths are relative to the root, with ``/``, and carry any byte a file name can have: what is not UTF-8 is kept as
surrogate escapes, as ``os.fsdecode`` does.
"""

import os
import stat
from dataclasses import dataclass
from typing import Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple

from outlive.artifacts.patterns import DEFAULT_IGNORE, compile_glob, ignorer
from outlive.wire.values import Entry

Stamp = Tuple[int, int]
"""(bytes, mtime_ns) of a file."""


def relative_path(path: str) -> str:
    """Return ``path`` without ``./``, doubled and trailing slashes.

    Raises ValueError when it is empty, absolute, contains ``..`` or a NUL: such a path names nothing below a root.
    """
    if "\0" in path:
        raise ValueError("a path cannot contain NUL: %r" % path)
    if path.startswith("/"):
        raise ValueError("must be relative to the work directory, not absolute: %r" % path)
    parts = [p for p in path.split("/") if p not in ("", ".")]
    if ".." in parts:
        raise ValueError("must stay below the work directory, without '..': %r" % path)
    if not parts:
        raise ValueError("names nothing: %r" % path)
    return "/".join(parts)


def scan(
    root: str,
    ignore: Iterable[str] = DEFAULT_IGNORE,
    since_ns: Optional[int] = None,
    on_error: Optional[Callable[[OSError], None]] = None,
) -> List[Entry]:
    """Return an entry, without digest, for each file and symbolic link below ``root``, sorted by path.

    No link is followed: a link is an entry with ``link`` and no bytes. With ``since_ns`` only what was written or
    moved there since is listed (``cp -p`` and ``tar`` restore old times, so the change time counts too). Sockets, pipes
    and devices are left out and never opened. What vanishes during the walk is left out; anything that cannot be
    listed goes to ``on_error``, or is raised: a scan with holes must not pass for a whole one.
    """
    ignored = ignorer(ignore)
    found: List[Entry] = []
    pending = [""]
    while pending:
        below = pending.pop()
        try:
            with os.scandir(os.path.join(root, below) if below else root) as listing:
                items = list(listing)
        except OSError as err:
            if below and isinstance(err, (FileNotFoundError, NotADirectoryError)):
                continue
            if on_error is None:
                raise
            on_error(err)
            continue
        for item in items:
            path = below + "/" + item.name if below else item.name
            if ignored(path):
                continue
            try:
                st = item.stat(follow_symlinks=False)
                target = os.readlink(item.path) if stat.S_ISLNK(st.st_mode) else ""
            except FileNotFoundError:
                continue
            except OSError as err:
                if on_error is None:
                    raise
                on_error(err)
                continue
            if stat.S_ISDIR(st.st_mode):
                pending.append(path)
            elif since_ns is not None and max(st.st_mtime_ns, st.st_ctime_ns) < since_ns:
                continue
            elif target:
                found.append(Entry(path, 0, mtime_ns=st.st_mtime_ns, mode=stat.S_IMODE(st.st_mode), link=target))
            elif stat.S_ISREG(st.st_mode):
                found.append(Entry(path, st.st_size, mtime_ns=st.st_mtime_ns, mode=stat.S_IMODE(st.st_mode)))
    found.sort(key=lambda entry: entry.path)
    return found


def points_outside(root: str, entry: Entry) -> bool:
    """Return whether ``entry`` is a link that leads out of ``root``, directly or over other links."""
    if not entry.link:
        return False
    top = os.path.realpath(root)
    end = os.path.realpath(os.path.join(root, entry.path))
    return end != top and not end.startswith(top.rstrip("/") + "/")


def stamps(entries: Iterable[Entry]) -> Dict[str, Stamp]:
    """Return path -> (bytes, mtime_ns), the ``before`` of a later ``infer``."""
    return {entry.path: (entry.bytes, entry.mtime_ns) for entry in entries}


def infer(before: Dict[str, Stamp], after: Iterable[Entry]) -> List[Entry]:
    """Return the entries of ``after`` that ``before`` lacks or knows with another size or time, in order."""
    return [e for e in after if tuple(before.get(e.path) or ()) != (e.bytes, e.mtime_ns)]


@dataclass(frozen=True)
class Roster:
    """The artifacts that a run must leave: relative paths or globs.

    ``*`` and ``?`` stay inside one name, ``**`` crosses directories, a directory means all below it, and a line that
    is the exact name of a file means that file, whatever characters it has. Raises ValueError for a line that is
    absolute, empty or contains ``..``.
    """

    declared: Tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "declared", tuple(relative_path(line) for line in self.declared))

    def match(self, entries: Sequence[Entry]) -> Tuple[List[Entry], List[str]]:
        """Return (entries that a line names, in their order; lines that no file answers).

        A link answers a line only when it leads to something among ``entries``: a dangling one is not a result.
        """
        files: Set[str] = set()
        for entry in entries:
            if not entry.link:
                files.add(entry.path)
                above = entry.path
                while "/" in above:
                    above = above.rsplit("/", 1)[0]
                    files.add(above)
        names = [(line, compile_glob(line)) for line in self.declared]
        answered: Set[str] = set()
        matched: List[Entry] = []
        for entry in entries:
            hit = False
            for line, glob in names:
                if entry.path == line or entry.path.startswith(line + "/") or glob.fullmatch(entry.path):
                    hit = True
                    if not entry.link or _lands(entry) in files:
                        answered.add(line)
            if hit:
                matched.append(entry)
        return matched, [line for line in self.declared if line not in answered]


def _lands(entry: Entry) -> str:
    """Where a link leads by its words alone, relative to the root; something no entry is called when outside."""
    return os.path.normpath(os.path.join(os.path.dirname(entry.path), entry.link))
