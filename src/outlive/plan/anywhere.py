"""`--gpu any`: the same training on every kind of GPU and several counts, within limits of time and money."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outlive.plan import gpus
from outlive.plan.answer import Choice, Target
from outlive.plan.choose import plan
from outlive.plan.cost import target
from outlive.plan.request import from_mapping

COUNTS = ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (8, 4), (8, 8))
"""GPUs per node and nodes that are looked at: what can usually be rented."""


def everywhere(
    mapping: Mapping[str, Any],
    *,
    tokens: float | None,
    prices: Mapping[str, float],
    currency: str,
    max_hours: float | None,
    max_cost: float | None,
) -> list[tuple[Choice, Target | None, str]]:
    """Return what fits within the limits, best first: by cost where prices are known, else fewest and smallest GPUs.

    Kinds without a price are left out when any price was given. More GPUs of a kind are only listed where a limit of
    time asks for them, or nothing smaller fits.
    """
    rows = gpus.table()
    found: list[tuple[Choice, Target | None, str]] = []
    for key, row in rows.items():
        price = prices.get(key, prices.get(""))
        if prices and price is None:
            continue
        if row["compute_capability"] is None:
            continue
        for per_node, nodes in COUNTS:
            if nodes > 1 and not row["nvlink_gb_s"]:
                break  # several nodes of consumer cards are not what people rent
            hardware = {**mapping["hardware"], "gpu": key, "gpus_per_node": per_node, "nodes": nodes}
            hardware.pop("memory_usable_gib", None)
            training = dict(mapping.get("training") or {})
            if training.get("precision") == "fp8-mixed" and row["fp8_tflops"] is None:
                break
            choice = plan(
                from_mapping({**mapping, "hardware": hardware, "training": training, "parallelism": None})
            ).choice
            if not choice.fits or choice.world < per_node * nodes:
                continue
            goal = target(choice, tokens, price=price, currency=currency, waste=None) if tokens else None
            if goal is not None and max_hours is not None and goal.hours > max_hours:
                continue
            if goal is not None and max_cost is not None and goal.cost is not None and goal.cost > max_cost:
                continue
            found.append((choice, goal, ""))
            if max_hours is None or (goal is not None and goal.hours <= max_hours):
                break
    found.sort(key=_order)
    return [(choice, goal, "taken" if i == 0 else "") for i, (choice, goal, _) in enumerate(found)]


def _order(row: tuple[Choice, Target | None, str]) -> tuple[float, float, float]:
    choice, goal, _ = row
    cost = goal.cost if goal is not None and goal.cost is not None else 0.0
    return cost, float(choice.world), choice.gpu.memory_gb * choice.world
