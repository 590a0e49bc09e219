"""A model as the planner sees it: dimensions, and how many parameters lie where."""

from __future__ import annotations

from typing import NamedTuple


class Model(NamedTuple):
    """Dimensions of a transformer. ``params`` is what is trained or loaded, all experts included.

    ``mlp`` is ``gated`` (three matrices) or ``plain`` (two); ``norm`` is ``rms`` or ``layer``; ``experts`` is 0 for a
    dense model, otherwise ``ffn`` is the width of the ``dense_layers`` and ``expert_ffn`` that of one expert.
    ``attention_params`` counts the attention matrices of one layer (latent attention has its own). ``inferred`` names
    what was not given and had to be worked out.
    """

    name: str
    arch: str
    params: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    mlp: str
    vocab: int
    tied: bool
    norm: str = "rms"
    positions: int = 0
    dropout: float = 0.0
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    attention_params: int = 0
    inferred: tuple[str, ...] = ()

    @property
    def q_width(self) -> int:
        """Columns of the query projection: heads x head size."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Columns of the key (or value) projection."""
        return self.kv_heads * self.head_dim

    @property
    def embedding_params(self) -> int:
        """Token table and learned positions."""
        return (self.vocab + self.positions) * self.hidden

    @property
    def head_params(self) -> int:
        """The output matrix where it is not the token table."""
        return 0 if self.tied else self.vocab * self.hidden

    @property
    def block_params(self) -> float:
        """Mean parameters of one block: what is neither table nor head, over the layers."""
        return max(0.0, (self.params - self.embedding_params - self.head_params) / self.layers)

    @property
    def matrices(self) -> int:
        """Matrices of the MLP: 3 gated, 2 plain."""
        return 3 if self.mlp == "gated" else 2

    @property
    def expert_block_params(self) -> float:
        """Mean parameters of one block that lie in routed experts (split by expert parallelism)."""
        if not self.experts:
            return 0.0
        share = (self.layers - self.dense_layers) / self.layers
        return share * self.experts * self.matrices * self.hidden * self.expert_ffn

    @property
    def active_block_params(self) -> float:
        """Mean parameters of one block that one token passes through."""
        if not self.experts:
            return self.block_params
        idle = 1 - self.experts_per_token / self.experts
        return max(0.0, self.block_params - idle * self.expert_block_params)

    @property
    def mlp_width(self) -> float:
        """Mean MLP width that one token passes through."""
        if not self.experts:
            return float(self.ffn)
        sparse = self.experts_per_token * self.expert_ffn + self.shared_ffn
        return (self.dense_layers * self.ffn + (self.layers - self.dense_layers) * sparse) / self.layers

    @property
    def active_params(self) -> float:
        """Parameters that one token passes through, tables and head included."""
        return self.embedding_params + self.head_params + self.layers * self.active_block_params

    def implied_params(self, *, bias: str = "none", cross: int = 0) -> int:
        """Return the parameters that follow from the dimensions: tables, projections, MLP or experts, norms.

        ``bias`` says where there are biases: ``none``, ``qkv``, ``attention``, ``mlp`` or ``all``. ``cross`` is how
        many layers attend to an encoder, too.
        """
        per_norm = self.hidden * (2 if self.norm == "layer" else 1)
        projections = self.attention_params or attention_matrices(self.hidden, self.heads, self.kv_heads, self.head_dim)
        if bias in ("all", "attention"):
            projections += self.q_width + 2 * self.kv_width + self.hidden
        elif bias == "qkv":
            projections += self.q_width + 2 * self.kv_width
        plain = self.matrices * self.hidden * self.ffn + ((self.ffn + self.hidden) if bias in ("all", "mlp") else 0)
        sparse = self.matrices * self.hidden * (self.experts * self.expert_ffn + self.shared_ffn)
        sparse += self.hidden * self.experts
        sparse_layers = self.layers - self.dense_layers if self.experts else 0
        blocks = self.layers * (projections + 2 * per_norm)
        blocks += (self.layers - sparse_layers) * plain + sparse_layers * sparse + cross * (projections + per_norm)
        return self.embedding_params + self.head_params + blocks + per_norm


def attention_matrices(hidden: int, heads: int, kv_heads: int, head_dim: int) -> int:
    """Return the parameters of query, key, value and output projections: h a d (q, o) + 2 h k d (k, v)."""
    return 2 * hidden * heads * head_dim + 2 * hidden * kv_heads * head_dim


def latent_attention(hidden: int, heads: int, q_rank: int, kv_rank: int, nope: int, rope: int, value: int) -> int:
    """Return the parameters of one layer of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, 2.1)."""
    query = hidden * heads * (nope + rope) if q_rank == 0 else hidden * q_rank + q_rank * heads * (nope + rope)
    return query + hidden * (kv_rank + rope) + kv_rank * heads * (nope + value) + heads * value * hidden
