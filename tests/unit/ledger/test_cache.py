import os
import sqlite3
import subprocess
import sys

import pytest

import outlive
from outlive.ledger import Ledger, cache, load
from outlive.ledger.state import LedgerState


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for n in range(20):
        ledger.append("box", name=f"b-{n}", box_id=str(n))
    return ledger


@pytest.fixture
def cached(ledger, tmp_path):
    """Path of a cache that was written, and is written again after every record."""
    path = tmp_path / "cache.db"
    load(ledger, path, from_bytes=0)
    assert path.exists()
    return path


def folded(ledger):
    return load(ledger, None)


def records_read(ledger, path, monkeypatch):
    """Return how many records a load reads beside the cache, and its answer."""
    seen = []
    records = Ledger.records

    def counting(self, start=0):
        for pair in records(self, start):
            seen.append(pair)
            yield pair

    monkeypatch.setattr(Ledger, "records", counting)
    state = load(ledger, path, from_bytes=0)
    monkeypatch.setattr(Ledger, "records", records)
    return len(seen), state


def test_only_what_is_new_is_read(ledger, cached, monkeypatch):
    ledger.append("box", name="new")
    read, state = records_read(ledger, cached, monkeypatch)
    assert read == 1
    assert state == folded(ledger)
    assert "new" in state.boxes


def test_a_small_ledger_is_folded_without_one(ledger, tmp_path):
    load(ledger, tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()


def test_a_missing_ledger_is_empty_whatever_the_cache_says(ledger, cached):
    ledger.path.unlink()
    assert load(ledger, cached, from_bytes=0) == LedgerState()


def shrink(ledger, path):
    ledger.path.write_bytes(b"".join(ledger.path.read_bytes().splitlines(keepends=True)[:5]))


def change_the_end(ledger, path):
    raw = ledger.path.read_bytes()
    ledger.path.write_bytes(raw.replace(b'"b-19"', b'"c-19"'))


def change_the_beginning(ledger, path):
    raw = ledger.path.read_bytes()
    ledger.path.write_bytes(raw.replace(b'"b-0"', b'"c-0"'))


def another_ledger(ledger, path):
    ledger.path.unlink()
    for n in range(40):
        ledger.append("box", name=f"z-{n}")


def garbage(ledger, path):
    path.write_bytes(b"not a database at all" * 100)


def truncated(ledger, path):
    path.write_bytes(path.read_bytes()[:3000])


def empty(ledger, path):
    path.write_bytes(b"")


def altered(ledger, path):
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE {cache.TABLE} SET state = replace(state, 'b-7', 'x-7')")
    connection.close()


def no_row(ledger, path):
    with sqlite3.connect(path) as connection:
        connection.execute(f"DELETE FROM {cache.TABLE}")
    connection.close()


def deleted(ledger, path):
    path.unlink()


@pytest.mark.parametrize(
    "harm",
    [shrink, change_the_end, change_the_beginning, another_ledger, garbage, truncated, empty, altered, no_row, deleted],
)
def test_the_answer_never_depends_on_the_cache(ledger, cached, harm):
    harm(ledger, cached)
    assert load(ledger, cached, from_bytes=0) == folded(ledger)
    assert load(ledger, cached, from_bytes=0) == folded(ledger)  # and it has mended itself


def test_it_mends_itself(ledger, cached, monkeypatch):
    garbage(ledger, cached)
    load(ledger, cached, from_bytes=0)
    assert records_read(ledger, cached, monkeypatch)[0] == 0


def test_a_cache_that_cannot_be_written_is_no_error(ledger, tmp_path):
    assert load(ledger, tmp_path / "no" / "such" / "folder.db", from_bytes=0) == folded(ledger)


def test_a_locked_cache_is_no_error(ledger, cached, monkeypatch):
    monkeypatch.setattr(cache, "REWRITE_AFTER_BYTES", 0)
    holder = sqlite3.connect(cached, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    ledger.append("box", name="new")
    assert load(ledger, cached, from_bytes=0) == folded(ledger)
    holder.execute("ROLLBACK")
    holder.close()


def test_sqlite_is_not_imported_until_it_is_used():
    code = "import sys, outlive.ledger; sys.exit('sqlite3' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(outlive.__file__))}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 0
