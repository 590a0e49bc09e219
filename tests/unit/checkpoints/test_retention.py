"""Laws of retention and of the index, over random histories."""

import os
import random

import pytest

from outlive.checkpoints.index import INDEX, Entry, load, read_index
from outlive.checkpoints.retention import Keep, best_first, choose_removed
from outlive.checkpoints.store import Store


def entries_of(rng):
    found = []
    for seq in rng.sample(range(1, 200), rng.randrange(0, 15)):
        verified = rng.choice((None, {"ok": True, "level": "bytes"}, {"ok": False, "level": "none"}))
        metrics = rng.choice(({}, {"val_loss": rng.random()}, {"val_loss": float("nan")}, {"loss": 1.0}))
        found.append(
            Entry(
                "step-%09d" % seq, str(seq), seq, rng.randrange(1000), rng.random() * 1e9, metrics, 1, 1, "d", "full",
                milestone=rng.random() < 0.1, pinned=rng.random() < 0.1, verified=verified,
            )
        )  # fmt: skip
    return found


@pytest.mark.parametrize("part", range(4))
def test_what_is_never_removed(part):
    for seed in range(part * 500, part * 500 + 500):
        rng = random.Random(seed)
        entries = entries_of(rng)
        keep = Keep(
            latest=rng.randrange(1, 5),
            best=rng.randrange(0, 3),
            mode=rng.choice(("min", "max")),
            every_steps=rng.choice((None, 50)),
            milestones=rng.random() < 0.5,
        )
        leased = {e.name for e in entries if rng.random() < 0.2}
        removed = set(choose_removed(entries, keep, leased))
        left = [e for e in entries if e.name not in removed]
        assert removed <= {e.name for e in entries} and not removed & leased
        if not entries:
            continue
        order = sorted(entries, key=lambda e: e.seq)
        assert order[-1] in left
        for kind in ([e for e in order if not e.bad], [e for e in order if e.proved]):
            assert not kind or kind[-1] in left, seed
        best = best_first(entries, keep)
        assert not best or best[0] in left, seed
        assert all(e in left for e in entries if e.pinned or (keep.milestones and e.milestone))
        assert set(choose_removed(left, keep, leased)) == set(), seed  # asking twice changes nothing
        assert len([e for e in left if not e.bad]) >= min(keep.latest, len([e for e in order if not e.bad]))


@pytest.mark.parametrize("words", [{"mode": "best"}, {"latest": 0}, {"best": -1}, {"every_steps": 0}])
def test_a_rule_of_nonsense_is_refused(words):
    with pytest.raises(ValueError):
        Keep(**words)


@pytest.mark.parametrize("seed", range(12))
def test_the_rebuilt_index_equals_the_one_that_was_kept(tmp_path, seed):
    rng = random.Random(seed)
    place = str(tmp_path / "ckpt")
    keep = Keep(latest=rng.randrange(1, 4), best=rng.randrange(0, 2), every_steps=rng.choice((None, 5)))
    step = 0
    with Store(place, keep) as store:
        for _ in range(rng.randrange(1, 12)):
            step = max(0, step + rng.randrange(-2, 6))
            writing = store.begin(step)
            writing.add_bytes("a", bytes(rng.randrange(256) for _ in range(20)))
            store.publish(writing, metrics={"val_loss": rng.random()}, milestone=rng.random() < 0.2)
            if rng.random() < 0.3:
                store.pin(rng.choice(store.entries).name)
            if rng.random() < 0.7:
                store.prune()
    kept, _why = read_index(place)
    os.unlink(os.path.join(place, INDEX))
    rebuilt = load(place)
    assert rebuilt.entries == kept.entries
    assert rebuilt.bad == kept.bad
    with Store(place, keep) as store:
        assert store.entries == kept.entries
