"""Laws of the planner: more is never worse, terms sum, what it proposes can be run."""

import math

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from outlive.plan import catalog
from outlive.plan.choose import costed, plan
from outlive.plan.layouts import faults, possible
from outlive.plan.memory import TERMS, memory
from outlive.plan.request import from_mapping
from outlive.plan.speed import speed

MODELS = ("GPT-2", "Qwen2.5-0.5B", "TinyLlama-1.1B", "Llama-3-8B", "Llama-2-13B", "Mixtral-8x7B", "Llama-2-70B")
GPUS = ("rtx-4090", "a100-40gb-sxm", "a100-80gb-sxm", "h100-80gb-sxm", "t4")

requests = st.builds(
    lambda name, gpu, count, nodes, seq_len, batch, method: from_mapping(
        {
            "model": {"name": name},
            "hardware": {"gpu": gpu, "gpus_per_node": count, "nodes": nodes},
            "training": {
                "seq_len": seq_len,
                "global_batch": batch,
                "method": method,
                "precision": "fp16-mixed" if gpu == "t4" else "bf16-mixed",
            },
        }
    ),
    st.sampled_from(MODELS),
    st.sampled_from(GPUS),
    st.sampled_from((1, 2, 4, 8)),
    st.sampled_from((1, 2)),
    st.sampled_from((512, 2048, 8192)),
    st.sampled_from((1, 6, 8, 64)),
    st.sampled_from(("full", "lora", "qlora")),
)
few = settings(max_examples=25, deadline=None)


@few
@given(requests, st.floats(1.0, 4.0))
def test_more_memory_never_turns_fits_into_does_not_fit(request, factor):
    if plan(request).choice.fits:
        assert plan(request._replace(usable_bytes=request.usable_bytes * factor)).choice.fits


@few
@given(requests, st.sampled_from(("gpus_per_node", "nodes")))
def test_more_gpus_never_turn_fits_into_does_not_fit_at_the_same_global_batch(request, field):
    before = plan(request).choice
    after = plan(request._replace(**{field: getattr(request, field) * 2})).choice
    if before.fits:
        assert after.fits
        assert after.layout.global_batch == before.layout.global_batch == request.global_batch


@few
@given(requests)
def test_terms_sum_to_the_total_and_none_is_negative(request):
    held = plan(request).choice.memory
    values = [getattr(held, name) for name in TERMS]
    assert min(values) >= 0
    assert math.isclose(sum(values), held.total, rel_tol=1e-9)
    assert 0 < held.low <= held.total <= held.high


@few
@given(requests)
def test_what_is_proposed_can_be_run(request):
    found = plan(request)
    choice = found.choice
    assume(choice.fits)
    assert faults(choice.layout, choice.model, choice.world, choice.seq_len) == []
    assert choice.layout.tp <= choice.gpus_per_node
    assert choice.nodes * choice.gpus_per_node == choice.world
    assert choice.layout.global_batch == request.global_batch
    for other in found.runners_up:
        assert faults(other.choice.layout, other.choice.model, other.choice.world, other.choice.seq_len) == []


@few
@given(requests)
def test_every_layout_of_the_search_is_possible_and_has_finite_figures(request):
    layouts = list(
        possible(
            request.model,
            world=request.world,
            gpus_per_node=request.gpus_per_node,
            seq_len=request.seq_len,
            global_batch=request.global_batch,
            micro_batch=None,
            recomputes=("none", "full"),
        )
    )
    for layout in layouts[:: max(1, len(layouts) // 20)]:
        assert faults(layout, request.model, request.world, request.seq_len) == []
        assert math.isfinite(memory(request, layout).total) and memory(request, layout).total > 0
        found = speed(request, layout)
        assert 0 < found.low <= found.tokens_per_second_per_gpu <= found.high < 1e9


@few
@given(requests, st.integers(1, 16))
def test_a_larger_micro_batch_needs_no_less_memory(request, size):
    layout = plan(request).choice.layout
    assume("_offload" not in layout.strategy)
    small = costed(request, layout._replace(micro_batch=size)).memory
    large = costed(request, layout._replace(micro_batch=size + 1)).memory
    assert large.total >= small.total


@few
@given(st.sampled_from(sorted(catalog.table())))
def test_every_model_of_the_table_can_be_planned(name):
    found = plan(from_mapping({"model": {"name": name}, "hardware": {"gpu": "h100", "gpus_per_node": 8, "nodes": 8}}))
    assert found.choice.memory.total > 0
    assert found.choice.fits or found.changes
