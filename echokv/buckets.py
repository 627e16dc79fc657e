"""The caches of one layer whose heads keep unequally many tokens: heads of like size are multiplied together."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
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

    The prompt tokens and the tail of each lie side by side, padded to the longest. What padding holds is finite and
    masked, as is the part of the tail that is not in use.

    begin: the entry of the layer's buffers where they start. keys, values, mask: views of these.
    """

    keys: Float[Tensor, "units width D"]
    values: Float[Tensor, "units width D"]
    mask: Float[Tensor, "units 1 width"]

    def __init__(self, units: list[int], longest: int) -> None:
        self.units, self.longest, self.begin = units, longest, 0

    def seen(self, buffer: Float[Tensor, "entries n"], capacity: int) -> Float[Tensor, "units width n"]:
        """The part of a layer's buffer that is theirs."""
        count, width = len(self.units), self.longest + capacity
        return buffer[self.begin : self.begin + count * width].view(count, width, -1)

    def attend(self, query: Float[Tensor, "units n D"], scaling: float, out: Float[Tensor, "units n D"]) -> None:
        """One product for all units. The n queries of a unit are those that share its KV head."""
        logits = products(query, self.keys, scaling, self.mask.dtype).add_(self.mask)
        weights = torch.softmax(logits, dim=-1, out=logits).to(self.values.dtype)
        torch.bmm(weights, self.values, out=out)

    def keep(self, staying: list[int], units: list[int]) -> None:
        """Drop all units but those in some places, which have new numbers; they move together."""
        if len(staying) < len(self.units):
            index = sent(torch.tensor(staying, dtype=torch.long), self.keys.device)
            for part in (self.keys, self.values, self.mask):
                part[: len(staying)] = part[index]
        self.units = units


class Units:
    """All units of some rows in one layer, in buckets of like size that lie one behind the other."""

    def __init__(self, kept: list[int], heads: int, like: Float[Tensor, "G L D"], capacity: int) -> None:
        """Make room. kept: prompt tokens of each unit; head h of row r is unit r * heads + h."""
        self.heads, self.capacity = heads, capacity
        waste = (GPU_WASTE if like.is_cuda else WASTE) // (2 * like.shape[-1] * like.element_size())
        self.buckets = [Bucket(units, max(kept[unit] for unit in units)) for units in alike(kept, waste)]
        end = self._lay()
        self.keys, self.values = (like.new_zeros(end, like.shape[-1]) for _ in range(2))
        self.mask = like.new_full((end, 1), -torch.inf, dtype=accumulator(like.dtype))
        self._place()
        for bucket in self.buckets:
            own = [kept[unit] for unit in bucket.units]
            bucket.mask[..., : bucket.longest] = padding(own, like) if min(own) < bucket.longest else 0

    def _lay(self) -> int:
        """Lay the buckets one behind the other: how many entries they take."""
        end = 0
        for bucket in self.buckets:
            bucket.begin = end
            end += len(bucket.units) * (bucket.longest + self.capacity)
        return end

    def _place(self) -> None:
        """Note where each unit is, and how queries come to the buckets' order and back, if they must."""
        for bucket in self.buckets:
            bucket.keys, bucket.values = (bucket.seen(part, self.capacity) for part in (self.keys, self.values))
            bucket.mask = bucket.seen(self.mask, self.capacity).mT
        self.places = {unit: (bucket, at) for bucket in self.buckets for at, unit in enumerate(bucket.units)}
        device, order, numbers = self.keys.device, list(self.places), sorted(self.places)
        self.tails = sent([self._tail(*self.places[unit]) for unit in numbers], device)
        self.rows = sent([unit // self.heads for unit in numbers], device)
        self.order, self.back = None, None
        if order != numbers:
            index = torch.tensor(order)
            self.order, self.back = sent(index, device), sent(index.argsort(), device)

    def _tail(self, bucket: Bucket, at: int) -> int:
        """The entry where the tail of a bucket's unit begins."""
        return bucket.begin + at * (bucket.longest + self.capacity) + bucket.longest

    def fill(self, row: int, keys: Float[Tensor, "heads n D"], values: Float[Tensor, "heads n D"]) -> None:
        """Store what the heads of a row keep; what goes beyond the longest of a bucket is nobody's."""
        for bucket, at, own in self._runs(row):
            some = slice(at, at + own.stop - own.start), slice(min(keys.shape[1], bucket.longest))
            bucket.keys[some], bucket.values[some] = keys[own, some[1]], values[own, some[1]]

    def fill_tail(self, row: int, keys: Float[Tensor, "heads n D"], values: Float[Tensor, "heads n D"]) -> None:
        """Store the tokens fed to a row."""
        for bucket, at, own in self._runs(row):
            some = slice(at, at + own.stop - own.start), slice(bucket.longest, bucket.longest + keys.shape[1])
            bucket.keys[some], bucket.values[some] = keys[own], values[own]
            bucket.mask[:, 0][some] = 0

    def _runs(self, row: int) -> Iterator[tuple[Bucket, int, slice]]:
        """The heads of a row that lie side by side, with the bucket and the place of the first."""
        first = row * self.heads
        for bucket, some in groupby(range(self.heads), key=lambda head: self.places[first + head][0]):
            own = list(some)
            yield bucket, self.places[first + own[0]][1], slice(own[0], own[-1] + 1)

    def tail(self, row: int, used: int, every: int) -> tuple[Float[Tensor, "G used D"], Float[Tensor, "G used D"]]:
        """Keys and values of the tokens fed to a row, of one head in so many."""
        own = [self.places[unit] for unit in range(row * self.heads, (row + 1) * self.heads, every)]
        ends = [slice(bucket.longest, bucket.longest + used) for bucket, _ in own]
        keys = torch.stack([bucket.keys[at, end] for (bucket, at), end in zip(own, ends, strict=True)])
        return keys, torch.stack([bucket.values[at, end] for (bucket, at), end in zip(own, ends, strict=True)])

    def attend(
        self,
        query: Float[Tensor, "units n D"],
        key: Float[Tensor, "units D"],
        value: Float[Tensor, "units D"],
        scaling: float,
        column: Int[Tensor, " rows"],
    ) -> Float[Tensor, "units n D"]:
        """Put one new token of each unit at its row's column of the tail, and attend to all that the unit has."""
        places = self.tails + column[self.rows]
        self.keys.index_copy_(0, places, key)
        self.values.index_copy_(0, places, value)
        self.mask.index_fill_(0, places, 0)
        if self.order is not None:
            query = query[self.order]
        found, first = torch.empty_like(query), 0
        for bucket in self.buckets:
            own = slice(first, first + len(bucket.units))
            first = own.stop
            bucket.attend(query[own], scaling, found[own])
        return found if self.back is None else found[self.back]

    def grow(self, room: int) -> None:
        """Lengthen the tails."""
        self.capacity += room
        end = self._lay()
        # One after the other: all at once would take more memory.
        self.keys = self._moved(self.keys.new_zeros(end, self.keys.shape[-1]), [one.keys for one in self.buckets])
        self.values = self._moved(self.values.new_zeros(self.keys.shape), [one.values for one in self.buckets])
        self.mask = self._moved(self.mask.new_full((end, 1), -torch.inf), [one.mask.mT for one in self.buckets])
        self._place()

    def _moved(self, made: Float[Tensor, "entries n"], parts: Sequence[Float[Tensor, "units before n"]]) -> Tensor:
        """A new buffer with what the old ones of all buckets hold."""
        for bucket, part in zip(self.buckets, parts, strict=True):
            bucket.seen(made, self.capacity)[:, : part.shape[1]] = part
        return made

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
