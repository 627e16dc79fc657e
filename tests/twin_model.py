"""The model by hand, for the naive twin: nothing is evicted, evicted prompt keys are masked head by head.

Shapes: S tokens so far, the first L of them the prompt; H query heads, G KV heads, D head dim, V token ids.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import torch
from torch import Tensor
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

Kept = list[list[list[int]]]  # kept prompt positions, [layer][head], ascending; G or H heads


@dataclass(frozen=True)
class Trace:
    """What a model computed over S tokens."""

    model: Any
    length: int  # L
    queries: list[Tensor]  # of the tokens fed last, after RoPE, per layer [H, n, D]
    raw: list[Tensor]  # the same before RoPE
    keys: list[Tensor]  # of all tokens, after RoPE, per layer [G, S, D]
    values: list[Tensor]
    logits: Tensor  # of the last token, [V]


def rotate(model: Any, vectors: Tensor, positions: Sequence[int]) -> Tensor:
    """R(p) of [heads, n, D] vectors, one position each, by the model's own rotary module."""
    cos, sin = model.model.rotary_emb(vectors, torch.tensor([list(positions)]))
    rotated: Tensor = apply_rotary_pos_emb(vectors[None], vectors[None], cos, sin)[0][0]
    return rotated


@torch.no_grad()
def forward(model: Any, tokens: Sequence[int], past: Trace | None = None, kept: Kept | None = None) -> Trace:
    """Run `tokens` after `past`. They see each other causally, and the prompt keys in `kept` (None: all)."""
    start = past.keys[0].shape[1] if past else 0
    queries, raw, keys, values = [], [], [], []
    hidden = model.model.embed_tokens(torch.tensor(tokens))
    for index, layer in enumerate(model.model.layers):
        q, k, v = project(layer.self_attn, layer.input_layernorm(hidden))
        raw.append(q)
        positions = range(start, start + len(tokens))
        q, k = rotate(model, q, positions), rotate(model, k, positions)
        if past:
            k, v = torch.cat([past.keys[index], k], 1), torch.cat([past.values[index], v], 1)
        heads = []
        for head in range(len(q)):
            group = head // (len(q) // len(k))
            seen = torch.ones(len(tokens), k.shape[1]).tril(start).bool()
            if past and kept:
                own = kept[index][head if len(kept[index]) == len(q) else group]
                seen[:, sorted(set(range(past.length)) - set(own))] = False
            logits = q[head] @ k[group].T / sqrt(q.shape[-1])
            heads.append(logits.masked_fill(~seen, -inf).softmax(-1) @ v[group])
        hidden = hidden + layer.self_attn.o_proj(torch.cat(heads, -1))
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        queries.append(q)
        keys.append(k)
        values.append(v)
    logits = model.lm_head(model.model.norm(hidden[-1]))
    return Trace(model, past.length if past else len(tokens), queries, raw, keys, values, logits)


def project(block: Any, normed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [H, n, D] and keys, values [G, n, D] before RoPE, biases and QK norms included."""
    matrices = (block.q_proj, block.k_proj, block.v_proj)
    q, k, v = (torch.stack(matrix(normed).split(block.head_dim, -1)) for matrix in matrices)
    if hasattr(block, "q_norm"):
        q, k = block.q_norm(q), block.k_norm(k)
    return q, k, v


def greedy(logits: Tensor, banned: Collection[int] = ()) -> int:
    """The best token id that is not banned."""
    return max((i for i in range(len(logits)) if i not in banned), key=lambda i: (float(logits[i]), -i))


def decode(
    prompt: Trace, kept: Kept | None, count: int, stop: Collection[int] = (), minimum: int = 0
) -> tuple[list[int], list[Tensor]]:
    """Greedy answer on a kept set, and the queries of the tokens fed, per layer [H, fed, D].

    A stop id ends the answer and belongs to it; it cannot be among the first `minimum` tokens.
    """
    tokens, trace, steps = [greedy(prompt.logits, stop if minimum else ())], prompt, []
    while len(tokens) < count and tokens[-1] not in stop:
        trace = forward(prompt.model, tokens[-1:], trace, kept)
        steps.append(trace.queries)
        tokens.append(greedy(trace.logits, stop if len(tokens) < minimum else ()))
    return tokens, join(steps)


def join(steps: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Lists of per-layer [H, n, D] queries as one list of [H, sum of n, D]."""
    return [torch.cat(list(layer), 1) for layer in zip(*steps, strict=True)]
