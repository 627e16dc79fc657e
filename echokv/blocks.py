"""The caches of rows that decode together: what a selection kept of the prompt, and the tokens fed since.

Both have their place in one preallocated buffer, so that a key is only copied when the room is used up, and one softmax
covers all. Rows of like size form a block, padded per layer. A row that keeps the whole prompt reads the shared
cache where it lies.
"""

from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from echokv.scores import accumulator, products
from echokv.session import Session


class Cache(Protocol):
    """What `Rows` asks of the caches of some neighbouring rows.

    The tail is the tokens fed since the prompt: `capacity` places, of which a mask says which are in use.
    """

    count: int

    def attend(
        self,
        layer: int,
        query: Float[Tensor, "rows H D"],
        key: Float[Tensor, "rows G D"],
        value: Float[Tensor, "rows G D"],
        scaling: float,
        column: Int[Tensor, " rows"],
        mask: Float[Tensor, "rows 1 capacity"],
    ) -> Float[Tensor, "rows H D"]:
        """Write one new token per row at its column of the tail, and attend to all that the row has."""
        ...

    def tail(self, row: int, used: int) -> tuple[list[Float[Tensor, "G used D"]], list[Float[Tensor, "G used D"]]]:
        """Keys and values, per layer, of the tokens fed to a row."""
        ...

    def grow(self, room: int) -> None:
        """Lengthen the tail."""
        ...

    def keep(self, rows: list[int]) -> None:
        """Drop all rows but these."""
        ...


def gather(full: Float[Tensor, "G L D"], indices: Int[Tensor, "heads kept"]) -> Float[Tensor, "heads kept D"]:
    """The selected entries; with more heads than G, head h takes those of KV head h // (heads // G)."""
    groups, length, dim = full.shape
    heads, kept = indices.shape
    offset = torch.arange(heads, device=full.device) // (heads // groups) * length
    flat = (indices.to(full.device) + offset[:, None]).view(-1)
    return full.view(-1, dim).index_select(0, flat).view(heads, kept, dim)


def longer(part: Float[Tensor, "rows heads n D"], room: int) -> Float[Tensor, "rows heads n+room D"]:
    """The same with zeros behind it."""
    return torch.cat([part, part.new_zeros(*part.shape[:2], room, part.shape[3])], dim=2)


class Block:
    """Rows that keep parts of their prompts, with the same number of heads."""

    def __init__(self, sessions: list[Session], capacity: int) -> None:
        first = sessions[0].prefill
        self.count, self.groups = len(sessions), first.groups
        self.heads = sessions[0].selection.indices[0].shape[0]
        kept = [[s.selection.indices[layer].shape[1] for s in sessions] for layer in range(first.layers)]
        self.longest = [max(lengths) for lengths in kept]
        self.padding = [
            _padding(lengths, keys) if min(lengths) < max(lengths) else None
            for lengths, keys in zip(kept, first.keys, strict=True)
        ]
        self.keys, self.values = [], []
        for layer in range(first.layers):
            shape = (self.count, self.heads, self.longest[layer] + capacity, first.keys[layer].shape[-1])
            keys, values = first.keys[layer].new_zeros(shape), first.values[layer].new_zeros(shape)
            for row, session in enumerate(sessions):
                indices, fed = session.selection.indices[layer], len(session.fed)
                end = self.longest[layer] + fed
                keys[row, :, : indices.shape[1]] = gather(session.prefill.keys[layer], indices)
                values[row, :, : indices.shape[1]] = gather(session.prefill.values[layer], indices)
                if fed:
                    keys[row, :, self.longest[layer] : end] = self._spread(session.tail_keys[layer])
                    values[row, :, self.longest[layer] : end] = self._spread(session.tail_values[layer])
            self.keys.append(keys)
            self.values.append(values)
        self._place()

    def _spread(self, part: Float[Tensor, "... G n D"]) -> Float[Tensor, "... heads n D"]:
        """Repeated for the heads that share a KV head, where each has a cache of its own."""
        return part if self.heads == self.groups else part.repeat_interleave(self.heads // self.groups, dim=-3)

    def _place(self) -> None:
        """Where the tail of each row and head begins, counted in entries from the buffer's start."""
        rows = torch.arange(self.count * self.heads)
        self.begins = [
            (rows * keys.shape[2] + longest).to(keys.device)
            for keys, longest in zip(self.keys, self.longest, strict=True)
        ]

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, column: Tensor, mask: Tensor
    ) -> Float[Tensor, "rows H D"]:
        keys, values, longest = self.keys[layer], self.values[layer], self.longest[layer]
        rows, heads, width, dim = keys.shape
        places = (self.begins[layer].view(rows, heads) + column[:, None]).view(-1)
        keys.view(-1, dim).index_copy_(0, places, self._spread(key[:, :, None]).reshape(-1, dim))
        values.view(-1, dim).index_copy_(0, places, self._spread(value[:, :, None]).reshape(-1, dim))
        # [rows * heads, H // heads, .]: a KV head serves all its query heads in one product.
        by_head = query.reshape(rows * heads, -1, dim)
        logits = products(by_head, keys.view(-1, width, dim), scaling, mask.dtype)
        by_row = logits.view(rows, -1, width)
        by_row[..., longest:].add_(mask)  # `+=` on a slice would copy it onto itself
        padding = self.padding[layer]
        if padding is not None:
            by_row[..., :longest].add_(padding)
        weights = torch.softmax(logits, dim=-1).to(values.dtype)
        return torch.bmm(weights, values.view(-1, width, dim)).view(rows, -1, dim)

    def tail(self, row: int, used: int) -> tuple[list[Tensor], list[Tensor]]:
        every = self.heads // self.groups
        keys, values = (
            [part[row, ::every, n : n + used].clone() for part, n in zip(parts, self.longest, strict=True)]
            for parts in (self.keys, self.values)
        )
        return keys, values

    def grow(self, room: int) -> None:
        for parts in (self.keys, self.values):
            for layer, part in enumerate(parts):  # one after the other: all at once would take twice the memory
                parts[layer] = longer(part, room)
        self._place()

    def keep(self, rows: list[int]) -> None:
        index = torch.tensor(rows)
        self.count = len(rows)
        for parts in (self.keys, self.values):
            for layer, part in enumerate(parts):
                parts[layer] = part[index.to(part.device)]
        self.padding = [None if part is None else part[index.to(part.device)] for part in self.padding]
        self._place()


def _padding(kept: list[int], keys: Tensor) -> Float[Tensor, "rows 1 longest"]:
    """-inf for the entries of a row that only longer rows have."""
    beyond = torch.arange(max(kept)) >= torch.tensor(kept)[:, None]
    zeros = torch.zeros(beyond.shape, dtype=accumulator(keys.dtype))
    return zeros.masked_fill(beyond, -torch.inf).to(keys.device)[:, None]


class Whole:
    """One row that keeps its whole prompt: of the shared cache nothing is copied, only the tail is its own."""

    count = 1

    def __init__(self, session: Session, capacity: int) -> None:
        prefill = session.prefill
        self.keys, self.values = prefill.keys, prefill.values
        shape = (1, prefill.groups, capacity, prefill.keys[0].shape[-1])
        self.tail_keys = [part.new_zeros(shape) for part in prefill.keys]
        self.tail_values = [part.new_zeros(shape) for part in prefill.values]
        for layer in range(prefill.layers if session.fed else 0):
            self.tail_keys[layer][0, :, : len(session.fed)] = session.tail_keys[layer]
            self.tail_values[layer][0, :, : len(session.fed)] = session.tail_values[layer]

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, column: Tensor, mask: Tensor
    ) -> Float[Tensor, "1 H D"]:
        keys, values = self.tail_keys[layer], self.tail_values[layer]
        keys.index_copy_(2, column, key[:, :, None])
        values.index_copy_(2, column, value[:, :, None])
        by_head = query.view(key.shape[1], -1, query.shape[-1])
        tail = products(by_head, keys[0], scaling, mask.dtype) + mask
        logits = products(by_head, self.keys[layer], scaling, mask.dtype)
        weights = torch.softmax(torch.cat([logits, tail], dim=-1), dim=-1).to(values.dtype)
        prompt, since = weights[..., : logits.shape[-1]], weights[..., logits.shape[-1] :]
        return (torch.bmm(prompt, self.values[layer]) + torch.bmm(since, values[0])).view(1, -1, query.shape[-1])

    def tail(self, row: int, used: int) -> tuple[list[Tensor], list[Tensor]]:
        keys, values = ([part[row, :, :used].clone() for part in some] for some in (self.tail_keys, self.tail_values))
        return keys, values

    def grow(self, room: int) -> None:
        self.tail_keys = [longer(part, room) for part in self.tail_keys]
        self.tail_values = [longer(part, room) for part in self.tail_values]

    def keep(self, rows: list[int]) -> None:
        assert rows == [0]


def caches(sessions: list[Session], capacity: int) -> tuple[list[Session], list[Cache]]:
    """The sessions, reordered so that the rows of a cache are neighbours, and their caches."""
    whole = [session for session in sessions if _uncut(session)]
    made: list[Cache] = [Whole(session, capacity) for session in whole]
    forms: dict[tuple[int, int], list[Session]] = {}
    for session in sessions:
        if session not in whole:
            indices = session.selection.indices
            # A block holds lengths within a factor of two, so that padding at most doubles it.
            longest = max(index.shape[1] for index in indices)
            forms.setdefault((indices[0].shape[0], longest.bit_length()), []).append(session)
    made += [Block(some, capacity) for some in forms.values()]
    return [*whole, *(session for some in forms.values() for session in some)], made


def _uncut(session: Session) -> bool:
    """Whether a selection keeps every entry of every KV head."""
    full = session.prefill.keys[0].shape[:2]
    return all(index.shape == full for index in session.selection.indices)
