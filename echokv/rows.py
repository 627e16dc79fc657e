"""Several sequences that decode together, each on its own evicted cache.

A row's keys are in two parts. The prompt part is what its selection kept: it never changes while decoding and
differs in length from row to row, layer to layer, and in its number of heads. Rows of like size form a block,
padded per layer. The tail holds the tokens fed since the prompt, one preallocated buffer for all rows. Both
parts enter one softmax, so no key is ever copied to append another, and FullKV reads the shared cache in place.
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


class Rows:
    """The running state of rows that step together; an `Observer` of the model's attention."""

    def __init__(self, sessions: list["Session"], room: int) -> None:
        """Open rows for sessions, with room for that many more tokens each. Sessions come back in `sessions`,
        reordered so that the rows of a block are neighbours."""
        ordered = sorted(sessions, key=_shape)
        shapes = [_shape(session) for session in ordered]
        self.sessions = ordered
        self.blocks = [
            Block([s for s, own in zip(ordered, shapes, strict=True) if own == shape])
            for shape in dict.fromkeys(shapes)
        ]
        self.used = [len(session.fed) for session in ordered]
        first = ordered[0].prefill
        shape = (len(ordered), first.groups, max(self.used) + room, first.keys[0].shape[-1])
        self.keys = [part.new_zeros(shape) for part in first.keys]
        self.values = [part.new_zeros(shape) for part in first.values]
        for row, session in enumerate(ordered):
            for layer in range(first.layers if session.fed else 0):
                self.keys[layer][row, :, : len(session.fed)] = session.tail_keys[layer]
                self.values[layer][row, :, : len(session.fed)] = session.tail_values[layer]
        self.record = any(session.record for session in ordered)
        self.queries: list[list[Tensor]] = [[] for _ in range(first.layers)]
        self._place()

    def _place(self) -> None:
        """Work out where the next token of each row goes and which of the tail it sees."""
        device = self.keys[0].device
        used = torch.tensor(self.used, device=device)
        self.longest = max(self.used) + 1
        hidden = torch.arange(self.longest, device=device) > used[:, None]
        dtype = accumulator(self.keys[0].dtype)
        even = min(self.used) == max(self.used)
        zeros = torch.zeros(hidden.shape, dtype=dtype, device=device)
        self.mask = None if even else zeros.masked_fill(hidden, -torch.inf)[:, None, None]
        self.row, self.column = torch.arange(len(self.used), device=device), used

    def advance(self) -> None:
        """Count the token just fed to every row, and make room for the next."""
        self.used = [used + 1 for used in self.used]
        if max(self.used) == self.keys[0].shape[2]:
            self.keys = [torch.cat([part, torch.zeros_like(part)], dim=2) for part in self.keys]
            self.values = [torch.cat([part, torch.zeros_like(part)], dim=2) for part in self.values]
        self._place()

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        keys, values = self.keys[layer], self.values[layer]
        row, column = self.row.to(keys.device), self.column.to(keys.device)
        keys[row, :, column] = key[:, :, 0]
        values[row, :, column] = value[:, :, 0]
        if self.record:
            self.queries[layer].append(query[:, :, 0].clone())
        rows, heads, _, dim = query.shape
        scaled = (query[:, :, 0] * scaling).view(rows, key.shape[1], -1, dim)
        tail = (scaled @ keys[:, :, : self.longest].mT).to(accumulator(keys.dtype))
        if self.mask is not None:
            tail = tail + self.mask.to(tail.device)
        out = torch.empty_like(scaled)
        first = 0
        for block in self.blocks:
            own = slice(first, first + block.count)
            first += block.count
            out[own] = block.attend(layer, scaled[own], tail[own], values[own, :, : self.longest])
        return out.view(rows, 1, heads, dim)

    def close(self, leaving: list[int]) -> None:
        """Hand the tails (and recorded queries) of these rows back to their sessions and drop the rows."""
        for row in leaving:
            session, used = self.sessions[row], self.used[row]
            session.tail_keys = [part[row, :, :used].clone() for part in self.keys]
            session.tail_values = [part[row, :, :used].clone() for part in self.values]
            if session.record:
                session.add_queries([torch.stack([step[row] for step in steps], 1) for steps in self.queries])
        staying = [row for row in range(len(self.sessions)) if row not in set(leaving)]
        self._keep(staying)

    def _keep(self, rows: list[int]) -> None:
        first, blocks = 0, []
        for block in self.blocks:
            local = [row - first for row in rows if first <= row < first + block.count]
            first += block.count
            if local:
                if len(local) < block.count:
                    block.keep(local)
                blocks.append(block)
        self.blocks = blocks
        self.sessions = [self.sessions[row] for row in rows]
        self.used = [self.used[row] for row in rows]
        if rows:
            index = torch.tensor(rows)
            self.keys = [part[index.to(part.device)] for part in self.keys]
            self.values = [part[index.to(part.device)] for part in self.values]
            self.queries = [[step[index.to(step.device)] for step in steps] for steps in self.queries]
            self._place()


def _shape(session: "Session") -> tuple[int, int, int]:
    """Rows with the same value share a block: the same heads, and lengths within a factor of two.

    A row that keeps the whole prompt stands alone, since alone it reads the shared cache without a copy.
    """
    indices = session.selection.indices
    longest = max(index.shape[1] for index in indices)
    alone = id(session) if longest == session.prefill.length else 0
    return indices[0].shape[0], longest.bit_length(), alone
