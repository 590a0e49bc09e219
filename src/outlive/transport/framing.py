"""How a command's own bytes and status are told apart from everything else that a login prints.

sshd hands our command line to the user's login shell (bash, fish, csh, a wrapper), which may print before it, and ssh
reports its own failures with status 255, which a command may have too. So the far ``sh`` prints a random mark on both
outputs before the command and a second mark with the status after it. What stands outside the marks is noise; a
missing second mark means that the connection died, whatever ssh's status says.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

LINE_MAX_BYTES = 120_000
"""Longest command line sent. Linux takes 128 KiB in one word; what is longer belongs into stdin."""

_PLAIN = re.compile(rb"[A-Za-z0-9 _@%+=:,./()<>&;|\"*?\[\]{}~^#$-]")


class Frame:
    """The marks of one command, and the line that makes the far end print them."""

    def __init__(self, token: str | None = None) -> None:
        self._token = token or os.urandom(12).hex()
        self.begin = f"{self._token}.begin\n".encode()
        self.end = f"{self._token}.end ".encode()

    def command(self, argv: Sequence[str], *, end_on_stdout: bool = True) -> str:
        """Return the text for sshd: printable ASCII which sh, bash, zsh, fish and csh all hand on unchanged.

        Raises ValueError for an empty argv, a NUL, or more than LINE_MAX_BYTES.
        """
        if not argv:
            raise ValueError("an empty argv")
        if any("\0" in word for word in argv):
            raise ValueError("a word of argv holds a NUL byte")
        half = len(self._token) // 2
        # The mark is never written whole: a shell that echoes its commands must not look like a command that began.
        mark = f"'%s%s{{}}\\n' {self._token[:half]} {self._token[half:]}"
        begin = "printf " + mark.format(".begin")
        end = "printf " + mark.format(".end %s") + ' "$s"'
        # exec in a subshell looks the word up in PATH only: `exit` or `A=b` is no builtin and no assignment there.
        dashes = "-- " if argv[0].startswith("-") else ""
        script = f"{begin}; {begin} >&2; (exec {dashes}{shlex.join(argv)}); s=$?; "
        script += f"{end}; {end} >&2" if end_on_stdout else f"{end} >&2"
        line = f"exec sh -c 'eval \"$(printf %b \"$1\")\"' sh '{_octal(script)}'"
        if len(line) > LINE_MAX_BYTES:
            raise ValueError(f"the command line has {len(line)} bytes, more than {LINE_MAX_BYTES}: send it by stdin")
        return line


def _octal(script: str) -> str:
    """Escape what any login shell treats specially inside single quotes, for ``printf %b``."""
    out = bytearray()
    for byte in script.encode("utf-8", "surrogateescape"):
        one = bytes([byte])
        out += one if _PLAIN.match(one) else b"\\0%03o" % byte
    return out.decode("ascii")


class Peel:
    """One output of a framed command, fed as it arrives.

    ``begun``: the first mark was seen. ``status``: the command's status once the second was. ``body``: the command's
    own bytes; incomplete while ``status`` is None (up to a mark's length may be held back by the search, never lost).
    ``noise``: what came before the first mark, capped.
    """

    NOISE_MAX_BYTES = 256 * 1024

    def __init__(self, frame: Frame) -> None:
        self._begin, self._end = frame.begin, frame.end
        self._searched = 0
        self.begun = False
        self.status: int | None = None
        self.noise = bytearray()
        self.body = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes; after the end they are dropped."""
        if self.status is not None:
            return
        if not self.begun:
            self.noise += data
            at = self.noise.find(self._begin)
            if at < 0:
                if len(self.noise) > self.NOISE_MAX_BYTES:
                    del self.noise[: -self.NOISE_MAX_BYTES // 2]
                return
            self.begun = True
            data = bytes(self.noise[at + len(self._begin) :])
            del self.noise[at:]
        self.body += data
        while (at := self.body.find(self._end, self._searched)) >= 0:
            after = bytes(self.body[at + len(self._end) : at + len(self._end) + 4])
            status = re.match(rb"(\d{1,3})\n", after)
            if status:
                self.status = int(status[1])
                del self.body[at:]
                return
            if len(after) < 4 and re.fullmatch(rb"\d{0,3}", after):
                self._searched = at
                return
            self._searched = at + 1
        self._searched = max(self._searched, len(self.body) - len(self._end))
