"""Hours and money for a number of tokens. Prices are given by the caller: they are offers, not facts."""

from __future__ import annotations

from outlive.plan.answer import Choice, Target


def target(choice: Choice, tokens: float, *, price: float | None, currency: str, waste: float | None) -> Target:
    """Return time and cost. ``price`` is per GPU and hour; ``waste`` the share lost to interruptions and saving."""
    useful = 1.0 - (waste or 0.0)
    rate = choice.speed
    gpus = choice.world

    def hours(per_gpu: float) -> float:
        return tokens / (per_gpu * gpus * useful) / 3600 if per_gpu > 0 and useful > 0 else float("inf")

    mid, low, high = hours(rate.tokens_per_second_per_gpu), hours(rate.high), hours(rate.low)
    cost = (lambda h: h * gpus * price) if price is not None else (lambda _h: None)
    return Target(tokens, mid, low, high, cost(mid), cost(low), cost(high), currency, waste)
