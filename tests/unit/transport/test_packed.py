"""What travels is packed once: a cache that is never believed without its digests."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from outlive.transport import pack, pack_train, packed


@pytest.fixture(autouse=True)
def cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    _anew()
    yield tmp_path / "outlive"
    _anew()


def _anew() -> None:
    """As in another process."""
    packed._kept.cache_clear()
    packed._digests.cache_clear()


def _all() -> tuple[str, tuple[str, bytes], tuple[str, bytes]]:
    _anew()
    return packed.program_digest(), packed.program(), packed.train()


RIGHT = (pack.supervisor_pyz()[0], pack.supervisor_pyz(), pack_train.train_zip())


def test_it_is_what_would_be_packed_and_is_kept(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _all() == RIGHT
    assert cache.stat().st_mode & 0o777 == 0o700 and len(list(cache.iterdir())) == 1

    def again() -> tuple[str, bytes]:
        raise AssertionError("packed again")

    monkeypatch.setattr(pack, "supervisor_pyz", again)
    monkeypatch.setattr(pack_train, "train_zip", again)
    assert _all() == RIGHT


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: data[:7], id="cut in its head"),
        pytest.param(lambda data: data[:-100], id="cut"),
        pytest.param(lambda data: data[:5000] + b"x" + data[5001:], id="a changed byte in the first"),
        pytest.param(lambda data: data[:-9] + b"x" + data[-8:], id="a changed byte in the second"),
        pytest.param(lambda data: b"\xff" * 40 + data[40:], id="no head"),
    ],
)
def test_a_damaged_one_is_packed_again(cache: pathlib.Path, damage) -> None:  # type: ignore[no-untyped-def]
    _all()
    (kept,) = cache.iterdir()
    kept.write_bytes(damage(kept.read_bytes()))
    assert _all() == RIGHT


def test_other_sources_are_another_packing(
    cache: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "src" / "outlive"
    for package in packed._TRAVELS:
        (top / package / "deep").mkdir(parents=True)
        (top / package / "deep" / "x.py").write_text("one = 1\n")
    monkeypatch.setattr(packed, "__file__", str(top / "transport" / "packed.py"))
    names = set()
    for change in (
        lambda: None,
        lambda: (top / "wire" / "deep" / "x.py").write_text("two = 2\n"),
        lambda: (top / "onbox" / "new.py").write_text(""),
        lambda: (top / "onbox" / "new.py").unlink(),
    ):
        change()
        packed._kept.cache_clear()
        names.add(packed._kept())
    assert len(names) == 3, "the fourth has the files of the second again"


def test_where_others_may_write_nothing_is_kept(cache: pathlib.Path) -> None:
    cache.mkdir(mode=0o777)
    cache.chmod(0o777)
    assert _all() == RIGHT
    assert not list(cache.iterdir())


def test_without_a_cache_directory_it_is_packed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert _all() == RIGHT


def test_a_few_are_kept(cache: pathlib.Path) -> None:
    cache.mkdir(mode=0o700)
    for number in range(9):
        (cache / f"packed-{number}").write_bytes(b"old")
    _all()
    assert len(list(cache.glob("packed-*"))) == packed.KEEP
    assert _all() == RIGHT
