"""How many answers are one batch where the settings leave it open: on a GPU, those of as many examples as fit.

It is decided before the first answer, by the memory that is free then, and noted beside the answers: who goes on takes
the same number, for in half precision a near tie may fall differently in a batch of another size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from eval.keeping.kernels import noted
from eval.planning.plan import Plan
from eval.planning.todo import Lacking

MOST = 8  # examples: beyond, a step's time is that of their caches and no longer of the weights they share
SHARE = 0.8  # of the free memory; what is left is the allocator's


def decode_rows(plan: Plan, model: Any, todo: Sequence[Lacking]) -> tuple[int | None, str]:
    """At most so many answers are decoded as one batch, None for those of one example; and what there is to say of it.

    Where the settings name a number it is that. What they leave open, earlier processes that wrote into the stores
    have decided, or else the free memory of the GPU; on a CPU, or several GPUs, it is one example.
    """
    how = plan.answering
    if how.alone or how.rows is not None:
        return how.rows, ""
    earlier = {rows for _, cells in todo for cell in cells for rows in noted(cell.store.folder, "decode_rows")}
    if earlier:
        kept = min((rows for rows in earlier if isinstance(rows, int)), default=None) if None not in earlier else None
        return kept, f"decode_rows={kept}, as for the answers that are stored" if kept else ""
    free = free_memory(model)
    if free is None:
        return None, ""
    positions = model.config.max_position_embeddings
    length = min(plan.protocol.prompt_limit or positions, positions)
    once, each = _bytes(model, length, todo)
    examples = max(1, min(MOST, int((SHARE * free - once) // each)))
    about = f"of up to {length:,} tokens, with {free / 1e9:.1f} GB free"
    if examples == 1:
        return None, f"the answers of one example at a time, {about}"
    rows = examples * max(len(cells) for _, cells in todo)
    return rows, f"decode_rows={rows}: the answers of {examples} examples at a time, {about}"


def free_memory(model: Any) -> int | None:
    """Bytes that are free on the model's GPU; None for a model that is not on one GPU alone."""
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) > 1 or next(iter(devices)).type != "cuda":
        return None
    return torch.cuda.mem_get_info(devices.pop())[0]


def _bytes(model: Any, length: int, todo: Sequence[Lacking]) -> tuple[int, int]:
    """Bytes wanted beside the weights: of one prefill at work, and of each example that waits for the others.

    An estimate from above. length: tokens of the longest prompt there may be.
    """
    config, size = model.config, model.dtype.itemsize
    heads, layers = config.num_attention_heads, config.num_hidden_layers
    groups = config.num_key_value_heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    new = max(example.subset.max_new_tokens for example, _ in todo)
    kept = 0
    for cell in max((cells for _, cells in todo), key=len):
        own = heads if cell.press.granularity == "query_head" else groups
        kept += own * (min(cell.budget or 0, length) + new)
    entries = length * groups + kept
    scores = 3 * 4 * heads * length  # float32: the attention of windows that methods share, and what is made of it
    prefill = length * (2 * config.hidden_size + 3 * config.intermediate_size) * size
    return prefill, layers * (entries * 2 * dim * size + scores)
