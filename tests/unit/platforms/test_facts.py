"""Laws over all platforms: a new file is held to them by being there."""

import pytest

from outlive.platforms import words
from outlive.platforms.load import all_ids, load

EVERY = [load(id) for id in all_ids()]
each = pytest.mark.parametrize("p", EVERY, ids=[p.id for p in EVERY])


@each
def test_destroy_loses_exactly_what_does_not_survive_it(p):
    for generic, attribute in (("stop", "survives_stop"), ("destroy", "survives_destroy")):
        roles = {"stop": ("pause",), "destroy": ("destroy", "cancel")}[generic]
        if not any(v.role in roles for v in p.verbs):
            continue
        assert set(p.lost_by(generic)) == {t.name for t in p.tiers if getattr(t, attribute) != "yes"}
        assert set(p.safe_tiers(generic)) == {t.name for t in p.tiers if getattr(t, attribute) == "yes"}


@each
def test_every_verb_says_something_about_every_tier(p):
    for verb in p.verbs:
        safe, lost = p.safe_tiers(verb.name), p.lost_by(verb.name)
        assert sorted((*safe, *lost)) == sorted(t.name for t in p.tiers)
        assert not set(safe) & set(lost)


@each
def test_there_is_a_root_that_a_stop_does_not_take(p):
    root = p.tiers_for("root")[0]
    assert root.writable and root.survives_stop in ("yes", "n/a")
    assert root.path or root.probe


@each
def test_durable_means_that_the_end_of_the_box_spares_it(p):
    for tier in p.tiers_for("durable"):
        assert not p.has_meter or tier.survives_destroy == "yes"


@each
def test_each_of_our_verbs_has_an_answer(p):
    assert [name for name, _ in p.six_verbs.items()] == list(words.SIX_VERBS)
    assert p.launch.steps


@each
def test_who_stops_the_meter_is_said(p):
    verb = p.verb(p.meter_stop_verb)
    assert p.six_verbs.down.how in ("api", "by-hand", "ours")
    if p.has_meter and verb.by_hand():
        assert verb.steps, "a person needs the console's words"
        assert p.six_verbs.down.how == "by-hand" or p.kind == "kubernetes"


@each
def test_what_bills_shrinks_with_each_part_of_the_stop(p):
    left = [len(p.bills_after(p.full_meter_stop[:n])) for n in range(len(p.full_meter_stop) + 1)]
    assert left == sorted(left, reverse=True)
    if p.has_meter:
        assert left[-1] < left[0]


@each
def test_parking_from_inside_never_ends_a_box(p):
    """`--then pause` may use self_stop only where the verb can be undone; the fact must be there to decide."""
    if p.self_stop is not None and p.self_stop.reversible == "yes":
        assert p.self_stop.role == "pause"
        assert p.lost_by(p.self_stop.verb) == ()


@each
def test_where_rules_ask_a_fact_is_present_or_unknown(p):
    assert p.rule_inputs.host_cuda_from and p.rule_inputs.image_digest_expected
    assert p.network.egress_price_from in words.PRICE_FROM
