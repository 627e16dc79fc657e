"""The caches of one layer whose heads keep unequally many tokens: heads of like size are multiplied together."""

from collections.abc import Iterator
from itertools import groupby

import torch
from jaxtyping import Float, Int
from torch import Tensor

from echokv.devices import sent
from echokv.scores import accumulator, products


def gather(full: Float[Tensor, "G L D"], indices: Int[Tensor, "heads kept"]) -> Float[Tensor, "heads kept D"]:
    """The selected entries; with more heads than G, head h takes those of KV head h // (heads // G).

    Of the -1 of a head that keeps fewer than others some entry is taken.
    """
    groups, length, dim = full.shape
    heads, kept = indices.shape
    offset = torch.arange(heads, device=full.device) // (heads // groups) * length
    flat = (sent(indices, full.device).clamp(min=0) + offset[:, None]).view(-1)
    return full.view(-1, dim).index_select(0, flat).view(heads, kept, dim)


def longer(part: Float[Tensor, "... n D"], room: int) -> Float[Tensor, "... n+room D"]:
    """The same with zeros behind it."""
    return torch.cat([part, part.new_zeros(*part.shape[:-2], room, part.shape[-1])], dim=-2)


def spread(part: Float[Tensor, "... G n D"], heads: int) -> Float[Tensor, "... heads n D"]:
    """Repeated for the heads that share a KV head, where each has a cache of its own."""
    groups = part.shape[-3]
    return part if heads == groups else part.repeat_interleave(heads // groups, dim=-3)


class Bucket:
    """Units of a layer that keep about equally many tokens; a unit is a head of a row, with a cache of its own.

    The prompt tokens and the tail of each lie in one buffer, padded to the longest. What padding holds is finite
    and masked.
    """

    def __init__(self, units: list[int], heads: int, kept: list[int], like: Tensor, capacity: int) -> None:
        """Make room. units: head h of row r is number r * heads + h. kept: prompt tokens of each unit."""
        self.heads, self.longest = heads, max(kept)
        shape = (len(units), self.longest + capacity, like.shape[-1])
        self.keys, self.values = like.new_zeros(shape), like.new_zeros(shape)
        self.padding = padding(kept, like) if min(kept) < self.longest else None
        self._place(units)

    def _place(self, units: list[int]) -> None:
        count, width, _ = self.keys.shape
        self.units = units
        self.rows = sent([unit // self.heads for unit in units], self.keys.device)
        # Where the tail of each unit begins, counted in entries from the buffer's start.
        self.begins = torch.arange(count, device=self.keys.device) * width + self.longest

    def fill(self, first: int, keys: Tensor, values: Tensor, column: int) -> None:
        """Store the entries [units, n, D] of neighbouring units, from a column of the buffer on, as far as it goes."""
        for buffer, part in ((self.keys, keys), (self.values, values)):
            room = buffer[first : first + len(part), column : column + part.shape[1]]
            room.copy_(part[:, : room.shape[1]])

    def attend(
        self,
        query: Float[Tensor, "units n D"],
        key: Float[Tensor, "units D"],
        value: Float[Tensor, "units D"],
        scaling: float,
        column: Int[Tensor, " rows"],
        mask: Float[Tensor, "rows 1 capacity"],
    ) -> Float[Tensor, "units n D"]:
        """One product for all units. The n queries of a unit are those that share its KV head."""
        places, dim = self.begins + column[self.rows], key.shape[-1]
        self.keys.view(-1, dim).index_copy_(0, places, key)
        self.values.view(-1, dim).index_copy_(0, places, value)
        logits = products(query, self.keys, scaling, mask.dtype)
        logits[..., self.longest :].add_(mask[self.rows])  # `+=` on a slice would copy it onto itself
        if self.padding is not None:
            logits[..., : self.longest].add_(self.padding)
        weights = torch.softmax(logits, dim=-1).to(self.values.dtype)
        return torch.bmm(weights, self.values)

    def grow(self, room: int) -> None:
        self.keys = longer(self.keys, room)  # one after the other: both at once would take more memory
        self.values = longer(self.values, room)
        self._place(self.units)

    def keep(self, staying: dict[int, int]) -> None:
        """Drop all rows but these, which have new numbers."""
        own = [at for at, unit in enumerate(self.units) if unit // self.heads in staying]
        if len(own) < len(self.units):
            index = sent(torch.tensor(own, dtype=torch.long), self.keys.device)
            self.keys, self.values = self.keys[index], self.values[index]
            self.padding = None if self.padding is None else self.padding[index]
        self._place([staying[self.units[at] // self.heads] * self.heads + self.units[at] % self.heads for at in own])


def padding(kept: list[int], like: Tensor) -> Float[Tensor, "units 1 longest"]:
    """-inf for the entries of a unit that only longer units have."""
    beyond = torch.arange(max(kept), device=like.device) >= sent(kept, like.device)[:, None]
    zeros = torch.zeros(beyond.shape, dtype=accumulator(like.dtype), device=like.device)
    return zeros.masked_fill(beyond, -torch.inf)[:, None]


class Units:
    """All units of some rows in one layer, in buckets within a factor of two: padding at most doubles them."""

    def __init__(self, kept: list[int], heads: int, like: Tensor, capacity: int) -> None:
        """kept: prompt tokens of each unit, row by row and head by head."""
        sizes: dict[int, list[int]] = {}
        for unit, n in enumerate(kept):
            sizes.setdefault(n.bit_length(), []).append(unit)
        self.buckets = [
            Bucket(units, heads, [kept[unit] for unit in units], like, capacity) for _, units in sorted(sizes.items())
        ]
        self._place()

    def _place(self) -> None:
        """Note where each unit is, and how queries come to the buckets' order and back, if they must."""
        order = [unit for bucket in self.buckets for unit in bucket.units]
        self.places = {unit: (bucket, at) for bucket in self.buckets for at, unit in enumerate(bucket.units)}
        self.order, self.back = None, None
        if order != sorted(order):
            index = torch.tensor(order)
            self.order, self.back = (sent(one, self.buckets[0].keys.device) for one in (index, index.argsort()))

    def runs(self, row: int, heads: int) -> Iterator[tuple[Bucket, int, slice]]:
        """The heads of a row that lie side by side, with the bucket and the place of the first."""
        for bucket, some in groupby(range(heads), key=lambda head: self.places[row * heads + head][0]):
            own = list(some)
            yield bucket, self.places[row * heads + own[0]][1], slice(own[0], own[-1] + 1)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, scaling: float, column: Tensor, mask: Tensor
    ) -> Float[Tensor, "units n D"]:
        if self.order is not None:
            query, key, value = query[self.order], key[self.order], value[self.order]
        first, parts = 0, []
        for bucket in self.buckets:
            own = slice(first, first + len(bucket.units))
            first += len(bucket.units)
            parts.append(bucket.attend(query[own], key[own], value[own], scaling, column, mask))
        found = torch.cat(parts)
        return found if self.back is None else found[self.back]

    def grow(self, room: int) -> None:
        for bucket in self.buckets:
            bucket.grow(room)

    def keep(self, staying: dict[int, int]) -> None:
        for bucket in self.buckets:
            bucket.keep(staying)
        self.buckets = [bucket for bucket in self.buckets if bucket.units]
        self._place()
