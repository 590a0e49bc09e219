"""Dimensions from a number of parameters alone, by the proportions that published decoders have. Always said."""

from __future__ import annotations

from outlive.plan.model import Model

# (parameters, layers, hidden) of published decoders; between them both grow with a power of the parameters.
_SHAPES = (
    (1.25e8, 12, 768),
    (3.5e8, 24, 1024),
    (1.3e9, 24, 2048),
    (3e9, 28, 3072),
    (7e9, 32, 4096),
    (1.3e10, 40, 5120),
    (3.4e10, 48, 8192),
    (7e10, 80, 8192),
    (1.8e11, 96, 12288),
    (4.05e11, 126, 16384),
    (1e12, 128, 25600),
)


def from_params(params: float, *, vocab: int = 32000) -> Model:
    """Return a gated decoder of about ``params`` parameters; ``inferred`` says that its dimensions were guessed."""
    layers, hidden = _between(params)
    head_dim = 128 if hidden >= 2048 else 64
    heads = max(1, round(hidden / head_dim))
    hidden = heads * head_dim
    kv_heads = 8 if heads % 8 == 0 and params > 2e10 else heads
    model = Model(
        name=f"{params / 1e9:.3g}B parameters",
        arch="decoder",
        params=round(params),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=0,
        mlp="gated",
        vocab=vocab,
        tied=params < 1e9,
    )
    ffn = max(hidden, int((params - model.implied_params()) / (3 * hidden * layers)) // 64 * 64)
    guessed = f"layers {layers}, hidden {hidden}, heads {heads}, MLP {ffn}, vocabulary {vocab}"
    return model._replace(ffn=ffn, inferred=(guessed,))


def _between(params: float) -> tuple[int, int]:
    import math

    small, large = _SHAPES[0], _SHAPES[-1]
    if params <= small[0]:
        scale = (params / small[0]) ** (1 / 3)
        return max(2, round(small[1] * scale)), max(64, round(small[2] * scale / 64) * 64)
    if params >= large[0]:
        return large[1], large[2]
    for low, high in zip(_SHAPES, _SHAPES[1:], strict=False):
        if params <= high[0]:
            part = math.log(params / low[0]) / math.log(high[0] / low[0])
            layers = low[1] * (high[1] / low[1]) ** part
            hidden = low[2] * (high[2] / low[2]) ** part
            return round(layers / 2) * 2, round(hidden / 128) * 128
    raise AssertionError("unreachable: the table covers the range")
