"""Floating point operations of one token, forward: what the matrices and the attention core need.

A multiply-add counts two. Backward costs twice the forward (gradients of inputs and of weights), once for frozen
matrices. Model FLOPs leave recompute out; executed FLOPs count it (Narayanan et al. 2021, arXiv 2104.04473, appendix).
"""

from __future__ import annotations

from outlive.plan.model import Model


def matrices_per_token(model: Model) -> float:
    """Return 2 x parameters of all block matrices that a token passes through."""
    return 2.0 * model.active_block_params * model.layers


def head_per_token(model: Model) -> float:
    """Return 2 x vocabulary x hidden: the output matrix, also where it is the token table."""
    return 2.0 * model.vocab * model.hidden


def attention_per_token(model: Model, seq_len: float) -> float:
    """Return the scores and their product with the values: 4 s a d per layer, half of it where attention is causal."""
    full = 4.0 * seq_len * model.q_width * model.layers
    return full if model.arch == "encoder" else full / 2


def model_flops_per_token(model: Model, seq_len: float) -> float:
    """Return 3 x forward: what MFU is counted in."""
    return 3 * (matrices_per_token(model) + head_per_token(model) + attention_per_token(model, seq_len))
