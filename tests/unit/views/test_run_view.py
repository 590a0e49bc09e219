"""Phrases about one run."""

from __future__ import annotations

from outlive.views.run_view import checkpoint_text


def test_the_age_of_a_checkpoint_is_by_the_clock_that_dated_it() -> None:
    """A box whose clock is a day ahead, or behind, dates its checkpoints so; a person reads how long ago it was."""
    for ahead in (0.0, 86400.0, -86400.0):
        status = {
            "checkpoint": {"step": 5, "path": "ckpt/5", "bytes": 10, "level": "structure", "w": 1000.0 + ahead},
            "clock_ahead_s": ahead,
        }
        assert checkpoint_text(status, 1060.0) == checkpoint_text(
            {"checkpoint": {**status["checkpoint"], "w": 1000.0}}, 1060.0
        )
    assert "60 s ago" in checkpoint_text(status, 1060.0)
