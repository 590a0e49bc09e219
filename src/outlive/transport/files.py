"""``Files`` over any ``Exec``, with nothing on the far side but a POSIX sh and its everyday tools.

For boxes without Python, without sftp. Names are arbitrary bytes but NUL: they travel as argv and come back ended by
NUL, and undecodable ones use Python's surrogateescape.
"""

from __future__ import annotations

import re
import secrets
import stat

from outlive.errors import BoxLacks, OutliveError, Unreachable
from outlive.transport.base import Completed, Exec, FileStat

_NONE, _IS_DIR, _DENIED, _SHORT = 44, 45, 43, 46

_STAT = r"""
LC_ALL=C; export LC_ALL
stat -L -c '%s %f %.9Y gnu' -- "$1" 2>/dev/null && exit 0
stat -L -c '%s %f %Y plain' -- "$1" 2>/dev/null && exit 0
stat -L -f '%z %Xp %Fm bsd' -- "$1" && exit 0
command -v stat >/dev/null 2>&1 || exit 47
stat -L -c %s -- "$1"
exit 48
"""

_READ = r"""
[ -d "$1" ] && exit 45
[ -e "$1" ] || exit 44
[ -r "$1" ] || exit 43
if [ "$2" = 0 ]; then skip() { cat; }; else n=$(($2 + 1)); skip() { tail -c "+$n"; }; fi
if [ "$3" = all ]; then skip <"$1"; else skip <"$1" | head -c "$3"; fi
"""

_WRITE = r"""
[ -d "$1" ] && exit 45
umask 077
mkdir -p -- "$2" || exit 1
t=$3
cat >"$t" || { rm -f -- "$t"; exit 1; }
n=$(wc -c <"$t"); [ "$((n))" = "$4" ] || { rm -f -- "$t"; exit 46; }
chmod "$5" "$t" || { rm -f -- "$t"; exit 1; }
sync "$t" 2>/dev/null
mv -f -- "$t" "$1" || { rm -f -- "$t"; exit 1; }
"""

_LIST = r"""
unset CDPATH
[ -e "$1" ] || exit 44
[ -d "$1" ] || exit 49
cd -- "$1" || exit 43
for f in * .[!.]* ..?*; do
  if [ -e "./$f" ] || [ -L "./$f" ]; then printf '%s\0' "$f"; fi
done
"""

_REMOVE = r"""
[ -d "$1" ] && [ ! -L "$1" ] && exit 45
rm -f -- "$1"
"""


class ExecFiles:
    """``Files`` by way of ``run`` with small scripts. ``timeout_s`` bounds each call, the bytes included."""

    def __init__(self, exec: Exec, timeout_s: float = 120.0) -> None:
        self._exec, self._timeout_s = exec, timeout_s

    def stat(self, path: str) -> FileStat | None:
        """See ``base.Files.stat``. ``mtime_ns`` has whole seconds where the far tools know no better."""
        done = self._sh(_STAT, path)
        if done.returncode == 0:
            words = done.stdout.decode("ascii", "replace").split()
            if len(words) == 4 and re.fullmatch(r"\d+\.?\d*", words[2]):
                mode = int(words[1], 16)
                return FileStat(int(words[0]), stat.S_IMODE(mode), _ns(words[2]), stat.S_ISDIR(mode))
            whole = self._sh("LC_ALL=C stat -L -c '%s %f %Y' -- \"$1\"", path).stdout.split()
            if len(whole) == 3:
                mode = int(whole[1], 16)
                return FileStat(int(whole[0]), stat.S_IMODE(mode), int(whole[2]) * 10**9, stat.S_ISDIR(mode))
        if done.returncode == 47:
            raise BoxLacks(f"{self._exec.describe()} has no `stat`", place=self._exec.describe(), lacks="stat")
        if b"No such file" in done.stderr or b"Not a directory" in done.stderr:
            return None
        raise self._failed("look at", path, done)

    def read(self, path: str, start: int = 0, limit: int | None = None) -> bytes:
        """See ``base.Files.read``. For what fits in memory; use ``Exec.stream`` for more."""
        if start < 0 or (limit is not None and limit < 0):
            raise ValueError("start and limit count from 0")
        done = self._sh(_READ, path, str(start), "all" if limit is None else str(limit))
        # The status is that of the last part of a pipe; a disk error in the first part shows only in its words.
        words = [line for line in done.stderr.splitlines() if line.strip() and b"Broken pipe" not in line]
        if done.returncode != 0 or words:
            raise self._failed("read", path, done)
        return done.stdout

    def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """See ``base.Files.write``. A connection that dies on the way publishes nothing (the size is compared)."""
        path = _operand(path)
        parent, slash, _ = path.rpartition("/")
        parent = parent + slash if slash else "."
        aside = f"{parent.rstrip('/') or ''}/.outlive-{secrets.token_hex(6)}.tmp"
        done = self._sh(_WRITE, path, parent, aside, str(len(data)), f"{mode:o}", stdin=data)
        if done.returncode == _SHORT:
            raise Unreachable(
                f"{path!r} arrived short and was not published",
                place=self._exec.describe(),
                safe="an older file of that name, if any, is untouched",
            )
        if done.returncode != 0:
            raise self._failed("write", path, done)

    def list(self, path: str) -> list[str]:
        """See ``base.Files.list``. Hidden names included, ``.`` and ``..`` not."""
        done = self._sh(_LIST, path)
        if done.returncode != 0:
            raise self._failed("list", path, done)
        return sorted(name.decode("utf-8", "surrogateescape") for name in done.stdout.split(b"\0") if name)

    def remove(self, path: str) -> None:
        """See ``base.Files.remove``."""
        done = self._sh(_REMOVE, path)
        if done.returncode != 0:
            raise self._failed("remove", path, done)

    def _sh(self, script: str, path: str, *rest: str, stdin: bytes = b"") -> Completed:
        argv = ["sh", "-c", script, "sh", _operand(path), *rest]
        return self._exec.run(argv, stdin=stdin, timeout_s=self._timeout_s)

    def _failed(self, verb: str, path: str, done: Completed) -> Exception:
        words = done.stderr.decode("utf-8", "replace").strip()
        if done.returncode == _NONE:
            return FileNotFoundError(2, "no such file or directory", path)
        if done.returncode == _IS_DIR:
            return IsADirectoryError(21, "is a directory", path)
        if done.returncode == 49:
            return NotADirectoryError(20, "not a directory", path)
        if done.returncode == _DENIED or "Permission denied" in words:
            return PermissionError(13, "permission denied", path)
        if "No space left" in words:
            return OSError(28, "no space left (bytes or inodes)", path)
        if "quota exceeded" in words.lower():
            return OSError(122, "disk quota exceeded", path)
        return OutliveError(f"could not {verb} {path!r} on {self._exec.describe()}", why=words.splitlines()[-3:])


def _operand(path: str) -> str:
    """Return ``path`` so that no tool takes it for an option or for standard input."""
    if not path or "\0" in path:
        raise ValueError(f"not a path: {path!r}")
    return path if path.startswith("/") else f"./{path}"


def _ns(seconds: str) -> int:
    whole, _, part = seconds.partition(".")
    return int(whole) * 10**9 + int((part + "0" * 9)[:9])
