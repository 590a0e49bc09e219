import pytest

from outlive.ledger import Box
from outlive.ledger.state import LedgerState, Run
from outlive.platforms.load import load
from outlive.views import overview_view, places_view
from outlive.views.places_view import BoxRow
from outlive.views.printable import width

NOW = 1_000_000.0


def status(run="tiny-261121-abcd", state="running", ended=False, **more):
    return {
        "run": run,
        "job": "tiny",
        "state": state,
        "why": "",
        "ended": ended,
        "created_w": NOW - 999,
        "step": 40,
        **more,
    }


def row(platform="autodl", current=True, runs=(), price=None, **more):
    box = Box("gpu-1", box_id="x" * 32, platform=platform, address="root@h:22", first_w=NOW - 7200, price=price, **more)
    return BoxRow(
        box,
        load(platform),
        current,
        True,
        "ready" if current else "unreachable",
        "",
        NOW - (1 if current else 720),
        list(runs),
    )


def text(*rows, columns=100):
    return "\n".join(places_view.ps_lines(list(rows), columns, NOW))


def test_a_stale_state_is_never_shown_as_now():
    said = text(row(current=False, runs=[status()]))
    assert "unreachable; last seen 12 min ago" in said
    assert "was running 12 min ago" in said


def test_an_end_is_a_fact_also_when_nobody_answers():
    said = text(row(current=False, runs=[status(state="succeeded", ended=True)]))
    assert "was succeeded" not in said and "succeeded" in said


def test_what_bills_is_summed_and_an_unknown_price_is_said():
    said = text(row(price={"per_h": 1.2, "currency": "USD"}), row())
    assert "1.2 USD an hour; about 2.40 USD" in said
    assert "price that nobody told: outlive up gpu-1 --price" in said
    assert "bills now: 1.20 USD an hour; 1 more at unknown prices" in said


def test_own_machines_do_not_bill():
    assert "bill" not in text(row(platform="local"))


@pytest.mark.parametrize("columns", [24, 40, 71, 100])
def test_the_table_fits(columns):
    rows = [
        row(
            runs=[status(), status("a-very-long-job-name-that-takes-all-the-room-261121-abcd", "failed", True)],
            price={"per_h": 1.2, "currency": "USD"},
        )
    ]
    for line in places_view.ps_lines(rows, columns, NOW):
        # a run's id is never cut: it has to be copied
        assert width(line) <= columns or line.strip().endswith("-261121-abcd")


def test_json_says_unknown_for_what_is_not_current():
    (box,) = places_view.ps_data([row(current=False, runs=[status()])], NOW)["boxes"]
    assert box["current"] is False and box["age_s"] == 720
    assert box["runs"][0]["state"] == "unknown" and box["runs"][0]["last_state"] == "running"


def overview(*rows, before=None, state=None):
    return overview_view.overview(list(rows), before or {}, state or LedgerState(), NOW)


def test_the_overview_tells_what_changed_and_only_that():
    old = {"w": NOW - 60, "runs": {"tiny-261121-abcd": status(step=30)}}
    assert overview(row(runs=[status()]), before=old).events == ["tiny-261121-abcd: step 30 -> 40"]
    ended = overview(row(runs=[status(state="failed", ended=True)]), before=old)
    assert "running -> failed" in ended.events[0]
    assert overview(row(runs=[status(step=30)]), before=old).events == []


def test_a_finished_run_that_is_not_pulled_needs_somebody_and_a_pulled_one_does_not():
    done = row(platform="local", runs=[status(state="succeeded", ended=True)])
    assert overview(done).next == ["outlive", "pull", "tiny-261121-abcd"]
    state = LedgerState(runs={"tiny-261121-abcd": Run("tiny-261121-abcd", delivery="proved")})
    assert overview(done, state=state).needs == []


def test_a_meter_that_nobody_saw_stop_comes_first():
    rows = [row(runs=[status(state="waiting", why="secrets are gone")], state="unconfirmed")]
    found = overview(*rows)
    assert "METER STILL RUNNING" in min(found.needs, key=lambda n: n.rank).text


def test_an_idle_box_that_bills_needs_somebody():
    found = overview(row(price={"per_h": 2.0, "currency": "USD"}))
    assert any("bills: 2 USD an hour" in need.text for need in found.needs)


def test_unreachable_is_not_called_lost():
    found = overview(row(current=False, runs=[status()]))
    assert any("says nothing about its runs" in need.text for need in found.needs)
    assert not any("tiny" in need.text for need in found.needs)


def test_runs_started_by_us_are_no_orphans_and_rentals_are():
    state = LedgerState()
    state.add({"n": 1, "k": "intent", "w": NOW, "id": "a", "label": "run tiny", "provider": "box"})
    state.add({"n": 2, "k": "intent", "w": NOW, "id": "b", "label": "rent an A100", "provider": "vastai"})
    texts = [need.text for need in overview(row(platform="local"), state=state).needs]
    assert len(texts) == 1 and "rent an A100" in texts[0]
