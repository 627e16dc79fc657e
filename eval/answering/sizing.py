"""How many answers are one batch where the settings leave it open: on a GPU, those of as many examples as fit.

It is decided before the first answer, by the memory that is free then, and noted beside the answers: who goes on takes
the same number, for in half precision a near tie may fall differently in a batch of another size. Cells whose stored
answers are of different numbers are answered one number after the other.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch

from eval.keeping.rounding import EXACT, ROWS, of_folder
from eval.planning.plan import Plan
from eval.planning.todo import Lacking

# Examples: beyond eight a step's time is that of their caches and no longer of the weights they share; and few sizes,
# so that shards on GPUs of one kind decide alike.
SIZES = (8, 4, 2, 1)
SHARE = 0.8  # of the free memory; what is left is the allocator's


@dataclass(frozen=True)
class Share:
    """What is answered at most `rows` at a time, None for the answers of one example; said: what there is to tell."""

    todo: Sequence[Lacking]
    rows: int | None
    said: str = ""


def shares(plan: Plan, model: Any, todo: Sequence[Lacking]) -> list[Share]:
    """What is lacking, by how many answers are decoded as one batch.

    Where the settings name a number it is that. What they leave open, earlier processes that wrote into a cell's store
    have decided, or else the free memory of the GPU; on a CPU, or several GPUs, it is one example.
    """
    how = plan.answering
    if how.alone or how.rows is not None:
        return [Share(todo, how.rows)]
    folders = {cell.store.folder for _, cells in todo for cell in cells}
    kept = {folder: _least(found) for folder in folders if (found := of_folder(folder).get(ROWS))}
    if plan.model.dtype in EXACT:  # here one number does for all
        kept = dict.fromkeys(kept, _least(set(kept.values())))
    fresh, said = None, ""
    if len(set(kept.values())) == 1:  # cells that are new go along with those that are there
        (fresh,) = set(kept.values())
    elif len(kept) < len(folders):
        fresh, said = _decided(plan, model)
    parts: dict[int | None, list[Lacking]] = {}
    for example, cells in todo:
        numbers = [kept.get(cell.store.folder, fresh) for cell in cells]
        for rows in dict.fromkeys(numbers):
            own = [cell for cell, number in zip(cells, numbers, strict=True) if number == rows]
            parts.setdefault(rows, []).append((example, own))
    return [Share(part, rows, said if rows == fresh and said else _told(rows)) for rows, part in parts.items()]


def _least(rows: Set[int | None]) -> int | None:
    """Of the numbers that stored answers are of: several where folders were merged before that was refused."""
    return min(rows, key=lambda number: number or 0, default=None)


def _told(rows: int | None) -> str:
    return f"decode_rows={rows}, as for the answers that are stored" if rows else ""


def _decided(plan: Plan, model: Any) -> tuple[int | None, str]:
    """By the free memory; and what there is to say of it. By the whole plan, so that shards decide alike."""
    free = free_memory(model)
    if free is None:
        return None, ""
    positions = model.config.max_position_embeddings
    length = min(plan.protocol.prompt_limit or positions, positions)
    once, each = _bytes(model, length, plan)
    examples = next((size for size in SIZES if once + size * each <= SHARE * free), 1)
    about = f"of up to {length:,} tokens, with {free / 1e9:.1f} GB free"
    if examples == 1:
        return None, f"the answers of one example at a time, {about}"
    rows = examples * len(plan.grid)
    return rows, f"decode_rows={rows}: the answers of {examples} examples at a time, {about}"


def free_memory(model: Any) -> int | None:
    """Bytes that are free on the model's GPU; None for a model that is not on one GPU alone."""
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) > 1 or next(iter(devices)).type != "cuda":
        return None
    return torch.cuda.mem_get_info(devices.pop())[0]


def _bytes(model: Any, length: int, plan: Plan) -> tuple[int, int]:
    """Bytes wanted beside the weights: of one prefill at work, and of each example that waits for the others.

    An estimate from above. length: tokens of the longest prompt there may be.
    """
    config, size = model.config, model.dtype.itemsize
    heads, layers = config.num_attention_heads, config.num_hidden_layers
    groups = config.num_key_value_heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    new = max(example.subset.max_new_tokens for example in plan.data.examples)
    kept = 0
    for cell in plan.grid:
        own = heads if cell.press.granularity == "query_head" else groups
        kept += own * (min(cell.budget or 0, length) + new)
    entries = length * groups + kept
    scores = 3 * 4 * heads * length  # float32: the attention of windows that methods share, and what is made of it
    prefill = length * (2 * config.hidden_size + 3 * config.intermediate_size) * size
    return prefill, layers * (entries * 2 * dim * size + scores)
