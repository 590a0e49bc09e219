"""Conformance of a transport, as plain functions, and an in-memory twin that passes them.

Needs no test framework: each ``check_*`` takes a fresh executor (or files and a directory of theirs) and raises
AssertionError or whatever the transport raised. ``run_all`` and ``run_all_files`` run them and report, for authors of
other transports::

    for name, problem in run_all(lambda: MyExec(...)).items():
        print(name, problem or "ok")
"""

from __future__ import annotations

import time
from collections.abc import Callable

from outlive.errors import TimeOver
from outlive.testing.memory_transport import MemoryBox, MemoryExec, MemoryFiles
from outlive.transport.base import Exec, Files

__all__ = [
    "EXEC_CHECKS",
    "FILES_CHECKS",
    "HARD_NAMES",
    "HARD_WORDS",
    "MemoryBox",
    "MemoryExec",
    "MemoryFiles",
    "run_all",
    "run_all_files",
]

HARD_WORDS: tuple[str, ...] = (
    "plain",
    "two words",
    "",
    "it's",
    '"double"',
    "line\nbreak",
    "tab\there",
    "-n",
    "--",
    "$HOME",
    "$(id)",
    "`id`",
    "back\\slash",
    "two\\\\slashes",
    "end\\",
    "\\'",
    "!history!",
    "*?[a]",
    "a;b|c&d<e>f",
    "~root",
    "{a,b}",
    "%s %d %%",
    "#no comment",
    "=equals",
    "^caret",
    "训练 日志",
    "émile",
    "\x01\x7f",
    "x" * 5000,
)
"""Words that some shell somewhere mistakes."""

HARD_NAMES: tuple[str, ...] = (
    "plain.txt",
    "two words",
    'it\'s "quoted"',
    "new\nline",
    "-rf",
    "--",
    "训练日志",
    ".hidden",
    "..two",
    "$HOME",
    "back\\slash",
    "*",
    "!",
    " ",
    "trailing\n",
    "n" * 255,
)
"""File names that some tool somewhere mistakes."""


# ---- Exec ----


def check_words_stay_words(exec: Exec) -> None:
    """argv reaches the program exactly."""
    done = exec.run(["printf", "%s\\0", *HARD_WORDS], timeout_s=30)
    got = done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]
    assert got == list(HARD_WORDS), [pair for pair in zip(got, HARD_WORDS, strict=False) if pair[0] != pair[1]]


def check_nothing_is_looked_up_in_a_shell(exec: Exec) -> None:
    """The first word is a program, not a builtin, a keyword or an assignment."""
    for argv in (["exit", "3"], ["A=b", "true"], ["if"], ["no such program"]):
        done = exec.run(argv, timeout_s=30)
        assert done.returncode == 127, (argv, done)


def check_stdin_is_bytes(exec: Exec) -> None:
    """Standard input and output carry every byte value unchanged."""
    data = bytes(range(256)) * 300 + b"\r\n\x00no newline at the end"
    done = exec.run(["cat"], stdin=data, timeout_s=30)
    assert done.returncode == 0 and done.stdout == data and done.stderr == b"", (done.returncode, len(done.stdout))


def check_empty_stdin_ends(exec: Exec) -> None:
    """Without stdin a reader sees its end at once."""
    assert exec.run(["cat"], timeout_s=15).stdout == b""


def check_unread_stdin_is_no_error(exec: Exec) -> None:
    """A command that does not read what it is sent ends by its own status."""
    assert exec.run(["sh", "-c", "exit 4"], stdin=b"x" * 3_000_000, timeout_s=30).returncode == 4


def check_outputs_are_separate(exec: Exec) -> None:
    """stdout and stderr do not mix and gain nothing."""
    done = exec.run(["sh", "-c", "echo out; echo err >&2; exit 0"], timeout_s=30)
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n"), done


def check_status_is_the_commands(exec: Exec) -> None:
    """Every status comes back, also those that ssh and shells use themselves; signal N is 128+N."""
    for status in (0, 1, 2, 126, 127, 130, 254, 255):
        done = exec.run(["sh", "-c", f"exit {status}"], timeout_s=30)
        assert done.returncode == status, (status, done)
    assert exec.run(["sh", "-c", "kill -9 $$"], timeout_s=30).returncode == 137


def check_time_is_bounded(exec: Exec) -> None:
    """TimeOver comes when the time is up, and the executor works afterwards."""
    exec.run(["true"], timeout_s=30)
    began = time.monotonic()
    try:
        exec.run(["sleep", "30"], timeout_s=1.5)
    except TimeOver:
        pass
    else:
        raise AssertionError("no TimeOver")
    assert time.monotonic() - began < 6, "too late"
    assert exec.run(["sh", "-c", "exit 0"], timeout_s=30).returncode == 0


def check_left_behind_does_not_hold(exec: Exec) -> None:
    """A process left in the background, even with our outputs open, does not keep ``run``."""
    began = time.monotonic()
    done = exec.run(["sh", "-c", "sleep 20 & echo started"], timeout_s=15)
    assert done.stdout == b"started\n" and done.returncode == 0, done
    assert time.monotonic() - began < 8


def check_large_output(exec: Exec) -> None:
    """Megabytes come back whole."""
    data = (b"0123456789abcde\n" * 65536) * 4
    assert exec.run(["cat"], stdin=data, timeout_s=60).stdout == data


def check_stream_round_trip(exec: Exec) -> None:
    """A stream's ends are open while it runs; finish gives what is left and the status."""
    with exec.stream(["cat"]) as stream:
        stream.stdin.write(b"ping\n")
        stream.stdin.flush()
        assert stream.stdout.read(5) == b"ping\n"
        stream.stdin.write(b"rest\x00\xff")
        done = stream.finish(30)
    assert (done.returncode, done.stdout) == (0, b"rest\x00\xff"), done


def check_stream_status_and_stderr(exec: Exec) -> None:
    """A stream's status and stderr are the command's."""
    with exec.stream(["sh", "-c", "echo err >&2; exit 255"]) as stream:
        done = stream.finish(30)
    assert (done.returncode, done.stdout, done.stderr) == (255, b"", b"err\n"), done


def check_stream_can_be_left(exec: Exec) -> None:
    """Leaving the context ends our half at once."""
    began = time.monotonic()
    with exec.stream(["sleep", "30"]):
        pass
    assert time.monotonic() - began < 10


def check_stream_finish_is_bounded(exec: Exec) -> None:
    """finish raises TimeOver."""
    with exec.stream(["sleep", "30"]) as stream:
        try:
            stream.finish(0.5)
        except TimeOver:
            return
    raise AssertionError("no TimeOver")


def check_fresh_login(exec: Exec) -> None:
    """prove_fresh returns where a login works."""
    exec.prove_fresh(30)


def check_close_twice(exec: Exec) -> None:
    """close may be called twice, and describe needs no connection."""
    exec.run(["true"], timeout_s=30)
    assert exec.describe()
    exec.close()
    exec.close()


EXEC_CHECKS: tuple[Callable[[Exec], None], ...] = (
    check_words_stay_words,
    check_nothing_is_looked_up_in_a_shell,
    check_stdin_is_bytes,
    check_empty_stdin_ends,
    check_unread_stdin_is_no_error,
    check_outputs_are_separate,
    check_status_is_the_commands,
    check_time_is_bounded,
    check_left_behind_does_not_hold,
    check_large_output,
    check_stream_round_trip,
    check_stream_status_and_stderr,
    check_stream_can_be_left,
    check_stream_finish_is_bounded,
    check_fresh_login,
    check_close_twice,
)


# ---- Files: each check gets an empty or missing directory of its own ----


def check_write_then_read(files: Files, root: str) -> None:
    """What was written is what is read, for every byte and hard name, and the list has exactly those names."""
    data = bytes(range(256)) * 40
    for name in HARD_NAMES:
        files.write(f"{root}/{name}", data + name.encode())
    for name in HARD_NAMES:
        assert files.read(f"{root}/{name}") == data + name.encode(), name
    assert files.list(root) == sorted(HARD_NAMES), files.list(root)


def check_parents_are_made(files: Files, root: str) -> None:
    """Missing parents are made, and may have hard names too."""
    files.write(f"{root}/a b/-c/它/f", b"x")
    assert files.list(f"{root}/a b/-c/它") == ["f"]


def check_parts(files: Files, root: str) -> None:
    """Reads start and end where asked; past the end is short, not an error."""
    files.write(f"{root}/f", b"0123456789")
    cases = [
        (0, 3, b"012"),
        (4, 3, b"456"),
        (8, 9, b"89"),
        (10, 4, b""),
        (99, 4, b""),
        (3, None, b"3456789"),
        (2, 0, b""),
    ]
    for start, limit, expected in cases:
        assert files.read(f"{root}/f", start, limit) == expected, (start, limit)
    files.write(f"{root}/empty", b"")
    assert files.read(f"{root}/empty") == b""


def check_stat(files: Files, root: str) -> None:
    """Size, mode and kind; None when there is nothing."""
    assert files.stat(f"{root}/nothing") is None
    files.write(f"{root}/f", b"12345", mode=0o640)
    found = files.stat(f"{root}/f")
    assert found and (found.bytes, found.mode, found.is_dir) == (5, 0o640, False), found
    assert found.mtime_ns > 10**18
    directory = files.stat(root)
    assert directory and directory.is_dir
    assert files.stat(f"{root}/f/below a file") is None


def check_overwrite(files: Files, root: str) -> None:
    """A second write replaces content and mode and leaves nothing aside."""
    files.write(f"{root}/f", b"a much longer first content", mode=0o644)
    files.write(f"{root}/f", b"short")
    found = files.stat(f"{root}/f")
    assert files.read(f"{root}/f") == b"short" and found and found.mode == 0o600
    assert files.list(root) == ["f"]


def check_missing(files: Files, root: str) -> None:
    """Reading and listing what is not there is FileNotFoundError; removing it is nothing."""
    for ask in (lambda: files.read(f"{root}/no"), lambda: files.list(f"{root}/no")):
        try:
            ask()
        except FileNotFoundError:
            continue
        raise AssertionError("no FileNotFoundError")
    files.remove(f"{root}/no")


def check_remove(files: Files, root: str) -> None:
    """Remove takes one file and never a directory."""
    files.write(f"{root}/d/-f", b"x")
    try:
        files.remove(f"{root}/d")
    except IsADirectoryError:
        pass
    else:
        raise AssertionError("a directory was removed")
    files.remove(f"{root}/d/-f")
    assert files.list(f"{root}/d") == []


def check_directory_is_not_written_over(files: Files, root: str) -> None:
    """Writing onto a directory is an error and puts nothing into it."""
    files.write(f"{root}/d/f", b"x")
    try:
        files.write(f"{root}/d", b"y")
    except IsADirectoryError:
        pass
    else:
        raise AssertionError("no IsADirectoryError")
    assert files.list(f"{root}/d") == ["f"]


def check_a_megabyte(files: Files, root: str) -> None:
    """A file of some size goes round."""
    data = bytes(range(251)) * 5000
    files.write(f"{root}/big", data)
    assert files.read(f"{root}/big") == data
    assert files.read(f"{root}/big", 700_000, 1000) == data[700_000:701_000]


FILES_CHECKS: tuple[Callable[[Files, str], None], ...] = (
    check_write_then_read,
    check_parents_are_made,
    check_parts,
    check_stat,
    check_overwrite,
    check_missing,
    check_remove,
    check_directory_is_not_written_over,
    check_a_megabyte,
)


# ---- for authors elsewhere ----


def run_all(make: Callable[[], Exec]) -> dict[str, Exception | None]:
    """Run every Exec check on an executor of its own; returns check name to the exception, None where it passed."""
    results: dict[str, Exception | None] = {}
    for check in EXEC_CHECKS:
        exec = make()
        results[check.__name__] = _outcome(lambda check=check, exec=exec: check(exec))  # type: ignore[misc]
        exec.close()
    return results


def run_all_files(make: Callable[[], Files], root: str) -> dict[str, Exception | None]:
    """Run every Files check in a directory of its own below ``root`` (absolute, writable); returns as ``run_all``."""
    results: dict[str, Exception | None] = {}
    for check in FILES_CHECKS:
        files, own = make(), f"{root}/{check.__name__}"
        results[check.__name__] = _outcome(lambda check=check, files=files, own=own: check(files, own))  # type: ignore[misc]
    return results


def _outcome(call: Callable[[], None]) -> Exception | None:
    try:
        call()
    except Exception as problem:  # whatever a transport raises is its result here
        return problem
    return None
