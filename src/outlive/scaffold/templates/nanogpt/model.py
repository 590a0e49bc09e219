"""A GPT: pre-norm blocks, learned positions, tied embeddings."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Shape:
    """Sizes of the model."""

    vocab_size: int = 256
    block_size: int = 128
    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 128
    dropout: float = 0.0
    bias: bool = False


class Block(nn.Module):
    """Attention and MLP, each on a normalised input and added to it."""

    def __init__(self, shape):
        super().__init__()
        self.n_head, self.dropout = shape.n_head, shape.dropout
        self.norm_1 = nn.LayerNorm(shape.n_embd, bias=shape.bias)
        self.qkv = nn.Linear(shape.n_embd, 3 * shape.n_embd, bias=shape.bias)
        self.attention_out = nn.Linear(shape.n_embd, shape.n_embd, bias=shape.bias)
        self.norm_2 = nn.LayerNorm(shape.n_embd, bias=shape.bias)
        self.up = nn.Linear(shape.n_embd, 4 * shape.n_embd, bias=shape.bias)
        self.down = nn.Linear(4 * shape.n_embd, shape.n_embd, bias=shape.bias)
        self.drop = nn.Dropout(shape.dropout)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(batch, length, 3, self.n_head, -1).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)  # the flash kernel where it can
        x = x + self.drop(self.attention_out(y.transpose(1, 2).reshape(batch, length, width)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm_2(x)))))


class GPT(nn.Module):
    """``forward(tokens, targets)`` returns (logits, loss)."""

    def __init__(self, shape):
        super().__init__()
        if shape.n_embd % shape.n_head:
            raise ValueError(f"n_embd {shape.n_embd} is not divisible by n_head {shape.n_head}")
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocab_size, shape.n_embd)
        self.positions = nn.Embedding(shape.block_size, shape.n_embd)
        self.drop = nn.Dropout(shape.dropout)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.n_layer))
        self.norm = nn.LayerNorm(shape.n_embd, bias=shape.bias)
        self.head = nn.Linear(shape.n_embd, shape.vocab_size, bias=False)
        self.head.weight = self.tokens.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:  # what adds to the residual stream starts smaller, the deeper the model
                out = name.endswith(("attention_out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * shape.n_layer) if out else 1.0))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens, targets=None):
        at = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.tokens(tokens) + self.positions(at))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    def flops_per_token(self):
        """Return FLOPs of forward and backward per token: 6 N and attention (PaLM, appendix B)."""
        shape = self.shape
        weights = sum(p.numel() for p in self.parameters()) - self.positions.weight.numel()
        return 6 * weights + 12 * shape.n_layer * shape.n_embd * shape.block_size
