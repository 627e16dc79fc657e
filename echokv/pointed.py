"""Entries of a layer as codes that name points, with outliers beside them: how `echokv.kvquant` stores them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from echokv.codecs import index_bytes
from echokv.devices import sent
from echokv.errors import UsageError
from echokv.packing import Entries, pack, split, unpack
from echokv.rotary import Angles
from echokv.scores import accumulator


class Coded(Protocol):
    """Keys or values of a layer as codes."""

    @property
    def bytes(self) -> int:
        """Bytes of all tensors that are stored of this prompt."""
        ...

    def unpack(self) -> Float[Tensor, "n D"]:
        """At the precision of the scores."""
        ...


@dataclass(frozen=True, eq=False)
class Pointed:
    """Coded keys or values of a layer, n of all heads, in blocks: numbers that share a scale stand in a column.

    sizes: rows of each block, D in all columns: of keys by channel a head's tokens. Or, `across`, one block whose
        columns are tokens: of D numbers each.
    middle, half: of the range of each block's columns.
    far: outliers, of each block the rows `row` of all its columns, `counts` at both ends together.
    points: [2^b], in [-1, 1], ascending; shared by all prompts.
    """

    codes: UInt8[Tensor, "n D*bits/8"]
    middle: Float[Tensor, "blocks columns"]
    half: Float[Tensor, "blocks columns"]
    far: Float[Tensor, "outliers columns"]
    row: Int[Tensor, "outliers columns"]
    counts: tuple[int, ...]
    sizes: tuple[int, ...]
    points: Float[Tensor, " points"]
    bits: int
    across: bool

    @property
    def bytes(self) -> int:
        parts = (self.codes, self.middle, self.half, self.far, self.row)
        return sum(part.nbytes for part in parts)

    def unpack(self) -> Float[Tensor, "n D"]:
        """At the precision of the points."""
        exact = self.points.dtype
        found = self.points[unpack(self.codes, self.bits).int()]
        made = found.T if self.across else found
        middle, half = (rows(part.to(exact), self.sizes) for part in (self.middle, self.half))
        made = torch.addcmul(middle, made, half)
        first = torch.tensor([sum(self.sizes[:block]) for block in range(len(self.sizes))], dtype=torch.long)
        start = sent(first.repeat_interleave(torch.tensor(self.counts, dtype=torch.long)), made.device)
        made = made.scatter(0, self.row.long() + start[:, None], self.far.to(exact))
        return made.T if self.across else made


def rows(of_blocks: Float[Tensor, "blocks columns"], sizes: Sequence[int]) -> Float[Tensor, "rows columns"]:
    """For each row of each block what its block has; of a single block one row, which stands for all."""
    if len(sizes) == 1:
        return of_blocks
    which = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes, dtype=torch.long))
    return of_blocks[sent(which, of_blocks.device)]


@dataclass(frozen=True, eq=False)
class Layer:
    """Keys and values of a layer: of each head the first `full` as they are, those behind them coded.

    positions: of the coded entries. angles: the rotation to some positions.
    """

    keys: Coded
    values: Coded
    full_keys: Float[Tensor, "full D"]
    full_values: Float[Tensor, "full D"]
    positions: Int[Tensor, " n"]
    angles: Callable[[Tensor], Angles]
    lengths: tuple[int, ...]
    full: tuple[int, ...]

    @property
    def bytes(self) -> int:
        parts = (self.full_keys, self.full_values, self.positions)
        return self.keys.bytes + self.values.bytes + sum(part.nbytes for part in parts)

    def unpack(self) -> tuple[Tensor, Tensor]:
        turned = self.angles(self.positions.long()).turn(self.keys.unpack())
        return self._joined(turned, self.full_keys), self._joined(self.values.unpack(), self.full_values)

    def _joined(self, made: Tensor, full: Tensor) -> Tensor:
        at_full, at_made = (sent(places, full.device) for places in split(self.lengths, self.full))
        whole = full.new_empty(sum(self.lengths), full.shape[1])
        whole[at_full], whole[at_made] = full, made.to(full.dtype)
        return whole


def layer(
    entries: Entries,
    coded: Sequence[int],
    keys: Callable[[Tensor, Sequence[int]], Coded],
    values: Callable[[Tensor], Coded],
) -> Layer:
    """The entries of one layer, of each head the last `coded` as codes.

    keys: codes keys [n, D] as they are before RoPE, so many of each head. values: codes values [n, D].
    """
    origin, lengths = entries.origin, tuple(entries.lengths)
    assert origin is not None
    full = tuple(n - own for n, own in zip(lengths, coded, strict=True))
    at_full, at_coded = (sent(places, entries.keys.device) for places in split(lengths, full))
    exact, positions = accumulator(entries.keys.dtype), origin.positions[at_coded]
    return Layer(
        keys(origin.angles(positions).undo(entries.keys[at_coded].to(exact)), coded),
        values(entries.values[at_coded].to(exact)),
        entries.keys[at_full],
        entries.values[at_full],
        positions.to(torch.int32),
        origin.angles,
        lengths,
        full,
    )


@dataclass(frozen=True)
class Packer:
    """Codes numbers by ranges of their own.

    points: 2^bits, ascending. dtype: the model's, of outliers. float16: of scales, else they have the model's too.
    outliers: given how many numbers share a scale, how many are outliers at either end.
    """

    bits: int
    points: Sequence[float]
    dtype: torch.dtype
    float16: bool
    outliers: Callable[[int], int]

    def by_channel(self, numbers: Float[Tensor, "n D"], sizes: Sequence[int]) -> Pointed:
        """Of each head the numbers of a channel share a scale. Raises UsageError where it cannot hold them."""
        return self._pointed(torch.split(numbers, list(sizes)))

    def by_token(self, numbers: Float[Tensor, "n D"]) -> Pointed:
        """The numbers of a token share a scale. Raises UsageError where it cannot hold them."""
        return self._pointed([numbers.T], across=True)

    def _pointed(self, blocks: Sequence[Tensor], across: bool = False) -> Pointed:
        """Code each block's columns, [rows, columns]. across: they are tokens."""
        whole = torch.cat(list(blocks))
        points = torch.tensor(self.points, dtype=whole.dtype, device=whole.device)
        blocks = [block for block in blocks if len(block)]  # a head that has none coded needs no scale
        counts = [self.outliers(len(block)) for block in blocks]
        found = [ends(block, count) for block, count in zip(blocks, counts, strict=True)]
        low, high = (torch.cat([whole[:0], *(end[side] for end in found)]) for side in (0, 1))
        sizes, kind = tuple(map(len, blocks)), torch.float16 if self.float16 else self.dtype
        middle, half = ((low + high) / 2).to(kind), ((high - low) / 2).to(kind)
        if not (middle.isfinite().all() and half.isfinite().all()):
            raise UsageError(
                "keys or values are too large for scales in float16: use scales='model' (cache.scales=model)"
            )
        zero, unit = (rows(part.to(whole.dtype), sizes) for part in (middle, half))
        codes = nearest(torch.where(unit > 0, (whole - zero) / unit, 0), points)
        codes = pack((codes.T if across else codes).contiguous(), self.bits)
        places = [end[2] for end in found]
        far = torch.cat([whole[:0], *(block.gather(0, place) for block, place in zip(blocks, places, strict=True))])
        short = all(index_bytes(size) == 2 for size in sizes)
        row = torch.cat([whole[:0].long(), *places]).to(torch.int16 if short else torch.int32)
        both = tuple(2 * count for count in counts)
        return Pointed(codes, middle, half, far.to(self.dtype), row, both, sizes, points, self.bits, across)


def nearest(numbers: Float[Tensor, "n m"], points: Float[Tensor, " points"]) -> UInt8[Tensor, "n m"]:
    """Which of ascending points each number is nearest to, the lower one at a tie."""
    return torch.bucketize(numbers, (points[1:] + points[:-1]) / 2).to(torch.uint8)


def ends(block: Float[Tensor, "n columns"], count: int) -> tuple[Tensor, Tensor, Int[Tensor, "outliers columns"]]:
    """Of each column the lowest and the highest number that is no outlier, a row each, and where the `count` outliers
    of either end lie; of equal numbers the first count as lower."""
    ordered, place = block.sort(dim=0, stable=True)
    last = len(block) - count
    return ordered[count : count + 1], ordered[last - 1 : last], torch.cat([place[:count], place[last:]])
