"""Every transport keeps its contract: the in-memory twin and this machine here; ssh in tests/servers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from outlive.testing import transport as suite
from outlive.transport.base import Completed, Exec, Files
from outlive.transport.files import ExecFiles
from outlive.transport.local import LocalExec

EXECUTORS: dict[str, Callable[[], Exec]] = {"memory": suite.MemoryExec, "local": LocalExec}


@pytest.mark.parametrize("check", suite.EXEC_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", EXECUTORS)
def test_exec(kind: str, check: Callable[[Exec], None]) -> None:
    exec = EXECUTORS[kind]()
    check(exec)
    exec.close()


@pytest.mark.parametrize("check", suite.FILES_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", ["memory", "local", "busybox"])
def test_files(kind: str, check: Callable[[Files, str], None], tmp_path: Path) -> None:
    makers: dict[str, Callable[[], Files]] = {
        "memory": suite.MemoryFiles,
        "local": lambda: ExecFiles(LocalExec()),
        "busybox": lambda: ExecFiles(busybox(tmp_path)),
    }
    check(makers[kind](), f"{tmp_path}/root of it")


def test_run_all_names_what_fails() -> None:
    class Deaf(LocalExec):
        def run(self, argv: object, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
            return super().run(list(argv), timeout_s=timeout_s)  # type: ignore[call-overload]

    results = suite.run_all(Deaf)
    assert {name for name, problem in results.items() if problem} == {"check_stdin_is_bytes", "check_large_output"}


def test_run_all_files_reports_each(tmp_path: Path) -> None:
    results = suite.run_all_files(lambda: ExecFiles(LocalExec()), str(tmp_path))
    assert len(results) == len(suite.FILES_CHECKS) and not any(results.values())


def busybox(tmp_path: Path) -> LocalExec:
    """Return an executor whose PATH holds busybox's tools and nothing else, as on the smallest boxes."""
    program = shutil.which("busybox")
    if not program:
        pytest.fail("busybox is missing: apt-get install busybox")
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    for tool in ("sh", "cat", "tail", "head", "stat", "wc", "mkdir", "mv", "rm", "chmod", "sync"):
        os.symlink(program, bin_dir / tool)
    return LocalExec(env={"PATH": str(bin_dir)})
