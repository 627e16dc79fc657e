"""The caches of one layer whose heads keep unequally many tokens: heads of like size are multiplied together."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from echokv.devices import sent
from echokv.scores import accumulator, products

WASTE = 2**20  # bytes of padding that a CPU may read rather than work on one more bucket
GPU_WASTE = 2**26  # the same of a GPU: a bucket costs it nine launches


def gather(
    indices: Int[Tensor, "heads kept"], keys: Float[Tensor, "G L D"], values: Float[Tensor, "G L D"]
) -> tuple[Float[Tensor, "heads kept D"], Float[Tensor, "heads kept D"]]:
    """The selected entries; with more heads than G, head h takes those of KV head h // (heads // G).

    Of the -1 of a head that keeps fewer than others some entry is taken.
    """
    groups, length, _ = keys.shape
    heads = len(indices)
    offset = torch.arange(heads, device=keys.device) // (heads // groups) * length
    places = sent(indices, keys.device).clamp(min=0) + offset[:, None]
    return entries(keys, places), entries(values, places)


def entries(full: Float[Tensor, "G L D"], places: Int[Tensor, "... n"]) -> Float[Tensor, "... n D"]:
    """Those in some places, counted over all heads."""
    dim = full.shape[-1]
    return full.view(-1, dim).index_select(0, places.view(-1)).view(*places.shape, dim)


def longer(part: Float[Tensor, "... n D"], room: int) -> Float[Tensor, "... n+room D"]:
    """The same with zeros behind it."""
    return torch.cat([part, part.new_zeros(*part.shape[:-2], room, part.shape[-1])], dim=-2)


def spread(part: Float[Tensor, "... G n D"], heads: int) -> Float[Tensor, "... heads n D"]:
    """Repeated for the heads that share a KV head, where each has a cache of its own."""
    groups = part.shape[-3]
    return part if heads == groups else part.repeat_interleave(heads // groups, dim=-3)


def padding(kept: list[int], like: Tensor) -> Float[Tensor, "units 1 longest"]:
    """-inf for the entries of a unit that only longer units have."""
    beyond = torch.arange(max(kept), device=like.device) >= sent(kept, like.device)[:, None]
    zeros = torch.zeros(beyond.shape, dtype=accumulator(like.dtype), device=like.device)
    return zeros.masked_fill(beyond, -torch.inf)[:, None]


class Bucket:
    """Units of a layer that keep about equally many tokens; a unit is a head of a row, with a cache of its own.

    The prompt tokens and the tail of each lie in one buffer, padded to the longest. What padding holds is finite
    and masked, as is the part of the tail that is not in use.
    """

    def __init__(self, units: list[int], kept: list[int], like: Tensor, capacity: int) -> None:
        """Make room. kept: prompt tokens of each unit."""
        self.units, self.longest = units, max(kept)
        shape = (len(units), self.longest + capacity, like.shape[-1])
        self.keys, self.values = like.new_zeros(shape), like.new_zeros(shape)
        self.mask = like.new_full((len(units), 1, shape[1]), -torch.inf, dtype=accumulator(like.dtype))
        self.mask[..., : self.longest] = padding(kept, like) if min(kept) < self.longest else 0

    @property
    def begins(self) -> Int[Tensor, " units"]:
        """Where the tail of each unit begins, counted in entries from the buffer's start."""
        count, width, _ = self.keys.shape
        return torch.arange(count, device=self.keys.device) * width + self.longest

    def fill(self, first: int, keys: Tensor, values: Tensor) -> None:
        """Store what neighbouring units keep, [units, n, D], of which what goes beyond the longest is nobody's."""
        some = slice(first, first + len(keys)), slice(min(keys.shape[1], self.longest))
        self.keys[some], self.values[some] = keys[:, some[1]], values[:, some[1]]

    def fill_tail(self, first: int, keys: Tensor, values: Tensor) -> None:
        """Store the tokens fed to neighbouring units, [units, n, D]."""
        some = slice(first, first + len(keys)), slice(self.longest, self.longest + keys.shape[1])
        self.keys[some], self.values[some] = keys, values
        self.mask[:, 0][some] = 0

    def attend(
        self,
        query: Float[Tensor, "units n D"],
        key: Float[Tensor, "units D"],
        value: Float[Tensor, "units D"],
        scaling: float,
        places: Int[Tensor, " units"],
        out: Float[Tensor, "units n D"],
    ) -> None:
        """One product for all units, after their new tokens have been put in their places.

        The n queries of a unit are those that share its KV head.
        """
        dim = key.shape[-1]
        self.keys.view(-1, dim).index_copy_(0, places, key)
        self.values.view(-1, dim).index_copy_(0, places, value)
        self.mask.view(-1).index_fill_(0, places, 0)
        logits = products(query, self.keys, scaling, self.mask.dtype).add_(self.mask)
        weights = torch.softmax(logits, dim=-1, out=logits).to(self.values.dtype)
        torch.bmm(weights, self.values, out=out)

    def grow(self, room: int) -> None:
        self.keys = longer(self.keys, room)  # one after the other: both at once would take more memory
        self.values = longer(self.values, room)
        self.mask = F.pad(self.mask, (0, room), value=-torch.inf)

    def keep(self, staying: Sequence[int], units: list[int]) -> None:
        """Drop all units but those in some places, which have new numbers."""
        if len(staying) < len(self.units):
            index = sent(torch.tensor(staying, dtype=torch.long), self.keys.device)
            self.keys, self.values, self.mask = self.keys[index], self.values[index], self.mask[index]
        self.units = units


class Units:
    """All units of some rows in one layer, in buckets of like size."""

    def __init__(self, kept: list[int], heads: int, like: Tensor, capacity: int) -> None:
        """kept: prompt tokens of each unit, row by row and head by head: head h of row r is number r * heads + h."""
        self.heads = heads
        waste = (GPU_WASTE if like.is_cuda else WASTE) // (2 * like.shape[-1] * like.element_size())
        together = alike(kept, waste)
        self.buckets = [Bucket(units, [kept[unit] for unit in units], like, capacity) for units in together]
        self._place()

    def _place(self) -> None:
        """Note where each unit is, and how queries come to the buckets' order and back, if they must."""
        order = [unit for bucket in self.buckets for unit in bucket.units]
        device = self.buckets[0].keys.device
        self.places = {unit: (bucket, at) for bucket in self.buckets for at, unit in enumerate(bucket.units)}
        self.rows = sent([unit // self.heads for unit in order], device)
        self.begins = torch.cat([bucket.begins for bucket in self.buckets])
        self.order, self.back = None, None
        if order != sorted(order):
            index = torch.tensor(order)
            self.order, self.back = sent(index, device), sent(index.argsort(), device)

    def runs(self, row: int) -> Iterator[tuple[Bucket, int, slice]]:
        """The heads of a row that lie side by side, with the bucket and the place of the first."""
        first = row * self.heads
        for bucket, some in groupby(range(self.heads), key=lambda head: self.places[first + head][0]):
            own = list(some)
            yield bucket, self.places[first + own[0]][1], slice(own[0], own[-1] + 1)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, scaling: float, column: Int[Tensor, " rows"]
    ) -> Float[Tensor, "units n D"]:
        places = self.begins + column[self.rows]
        if self.order is not None:
            query, key, value = query[self.order], key[self.order], value[self.order]
        found, first = torch.empty_like(query), 0
        for bucket in self.buckets:
            own = slice(first, first + len(bucket.units))
            first = own.stop
            bucket.attend(query[own], key[own], value[own], scaling, places[own], found[own])
        return found if self.back is None else found[self.back]

    def grow(self, room: int) -> None:
        for bucket in self.buckets:
            bucket.grow(room)
        self._place()

    def keep(self, staying: dict[int, int]) -> None:
        """Drop all rows but these, which have new numbers."""
        for bucket in self.buckets:
            own = [at for at, unit in enumerate(bucket.units) if unit // self.heads in staying]
            rows = [(staying[unit // self.heads], unit % self.heads) for unit in (bucket.units[at] for at in own)]
            bucket.keep(own, [row * self.heads + head for row, head in rows])
        self.buckets = [bucket for bucket in self.buckets if bucket.units]
        self._place()


def alike(kept: Sequence[int], waste: int) -> list[list[int]]:
    """Units by size, the largest first, in few buckets of little padding.

    Units that keep equally many are in one bucket. The next smaller ones join those before them unless padding more
    than doubled them, or there were more than `waste` entries of it in the bucket.
    """
    sizes: dict[int, list[int]] = {}
    for unit, n in enumerate(kept):
        sizes.setdefault(n, []).append(unit)
    buckets: list[list[int]] = []
    longest = padded = 0
    for n, units in sorted(sizes.items(), reverse=True):
        padded += (longest - n) * len(units)
        if not buckets or longest > 2 * n or padded > waste:
            buckets.append([])
            longest, padded = n, 0
        buckets[-1] += units
    return [sorted(units) for units in buckets]
