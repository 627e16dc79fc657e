"""The prompt parts of the caches of rows that decode together.

What a selection kept never changes while decoding, and differs in length from row to row, layer to layer, and in
its number of heads. Rows of like size form a block, padded per layer; a row that keeps everything reads the shared
cache in place.
"""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from echokv.scores import accumulator

if TYPE_CHECKING:
    from echokv.session import Session


def gather(full: Float[Tensor, "G L D"], indices: Int[Tensor, "heads kept"]) -> Float[Tensor, "heads kept D"]:
    """The selected entries; with more heads than G, head h takes those of KV head h // (heads // G)."""
    groups, length, dim = full.shape
    heads, kept = indices.shape
    offset = torch.arange(heads, device=full.device) // (heads // groups) * length
    flat = (indices.to(full.device) + offset[:, None]).view(-1)
    return full.view(-1, dim).index_select(0, flat).view(heads, kept, dim)


class Block:
    """The prompt parts of rows with the same number of heads, padded to the longest in each layer."""

    def __init__(self, sessions: list["Session"]) -> None:
        layers = range(sessions[0].prefill.layers)
        self.count = len(sessions)
        self.keys = [self._stack(layer, [(s, s.prefill.keys[layer]) for s in sessions]) for layer in layers]
        self.values = [self._stack(layer, [(s, s.prefill.values[layer]) for s in sessions]) for layer in layers]
        self.masks = [self._mask(layer, sessions) for layer in layers]

    @staticmethod
    def _stack(layer: int, parts: list[tuple["Session", Tensor]]) -> Float[Tensor, "rows heads longest D"]:
        kept = [s.selection.indices[layer] for s, _ in parts]
        if len(parts) == 1:
            full = parts[0][1]
            whole = kept[0].shape == full.shape[:2]
            return (full if whole else gather(full, kept[0]))[None]
        longest = max(index.shape[1] for index in kept)
        example = parts[0][1]
        stacked = example.new_zeros(len(parts), kept[0].shape[0], longest, example.shape[-1])
        for row, (index, (_, full)) in enumerate(zip(kept, parts, strict=True)):
            stacked[row, :, : index.shape[1]] = gather(full, index)
        return stacked

    def _mask(self, layer: int, sessions: list["Session"]) -> Float[Tensor, "rows 1 1 longest"] | None:
        kept = torch.tensor([s.selection.indices[layer].shape[1] for s in sessions])
        keys = self.keys[layer]
        longest = keys.shape[2]
        if bool((kept == longest).all()):
            return None
        padding = torch.arange(longest) >= kept[:, None]
        zeros = torch.zeros(len(sessions), longest, dtype=accumulator(keys.dtype))
        return zeros.masked_fill(padding, -torch.inf).to(keys.device)[:, None, None]

    def keep(self, rows: list[int]) -> None:
        """Drop all rows but these."""
        index = torch.tensor(rows)
        self.count = len(rows)
        self.keys = [part[index.to(part.device)] for part in self.keys]
        self.values = [part[index.to(part.device)] for part in self.values]
        self.masks = [None if part is None else part[index.to(part.device)] for part in self.masks]

    def attend(
        self,
        layer: int,
        query: Float[Tensor, "rows G r D"],
        tail: Float[Tensor, "rows G r t"],
        tail_values: Float[Tensor, "rows G t D"],
    ) -> Float[Tensor, "rows G r D"]:
        """Attention of one new token per row over its prompt part and its tail, whose logits are given."""
        keys, values = self.keys[layer], self.values[layer]
        rows, heads, longest, dim = keys.shape
        _, groups, per_group, _ = tail.shape
        # [rows, heads, H // heads, .]: a KV head serves all its query heads in one product.
        by_head = query.reshape(rows, heads, -1, dim)
        logits = (by_head @ keys.mT).view(rows, groups, per_group, longest).to(tail.dtype)
        mask = self.masks[layer]
        if mask is not None:
            logits = logits + mask
        weights = torch.softmax(torch.cat([logits, tail], dim=-1), dim=-1).to(values.dtype)
        prompt, generated = weights[..., :longest], weights[..., longest:]
        out: Tensor = (prompt.reshape(rows, heads, -1, longest) @ values).view(rows, groups, per_group, dim)
        return out + generated @ tail_values


def form(session: "Session") -> tuple[int, int, int]:
    """Rows with the same value share a block: the same heads, and lengths within a factor of two.

    A row that keeps the whole prompt stands alone, since alone it reads the shared cache without a copy.
    """
    indices = session.selection.indices
    longest = max(index.shape[1] for index in indices)
    alone = id(session) if longest == session.prefill.length else 0
    return indices[0].shape[0], longest.bit_length(), alone
