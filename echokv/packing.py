"""Codes of a few bits in whole bytes, and the entries that a layer keeps as such codes with scales."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from echokv.devices import sent
from echokv.errors import UsageError
from echokv.rotary import Angles


@dataclass(frozen=True, eq=False)
class Origin:
    """Where the entries of a layer are from.

    layer: which of those that are evicted from. heads: of each head the KV head.
    positions: of the entries. angles: the rotation of the layer's keys to some positions.
    """

    layer: int
    heads: Sequence[int]
    positions: Int[Tensor, " n"]
    angles: Callable[[Tensor], Angles]


@dataclass(frozen=True, eq=False)
class Entries:
    """What the heads of one layer keep of the prompt: head by head, ascending, without padding.

    lengths: how many each head keeps; n is their sum. origin: where they are from, which not every codec asks for.
    """

    keys: Float[Tensor, "n D"]
    values: Float[Tensor, "n D"]
    lengths: Sequence[int]
    origin: Origin | None = None


class Packed(Protocol):
    """The entries of one layer as a codec stores them."""

    @property
    def bytes(self) -> int:
        """Bytes of all tensors that the entries are made of."""
        ...

    def unpack(self) -> tuple[Float[Tensor, "n D"], Float[Tensor, "n D"]]:
        """Keys and values in the order of `Entries`, as near as they are stored."""
        ...


def pack(codes: UInt8[Tensor, "n m"], bits: int) -> UInt8[Tensor, "n m*bits/8"]:
    """Codes side by side in bytes, the first in the lowest bits. A row must fill whole bytes."""
    parts = codes.view(len(codes), codes.shape[1] * bits // 8, 8 // bits)
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=codes.device)
    packed: Tensor = (parts << shifts).sum(dim=-1, dtype=torch.uint8)
    return packed


def unpack(packed: UInt8[Tensor, "n bytes"], bits: int) -> UInt8[Tensor, "n bytes*8/bits"]:
    """The codes that `pack` was given."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)
    codes: Tensor = (packed[..., None] >> shifts) & (2**bits - 1)
    return codes.flatten(1)


@dataclass(frozen=True, eq=False)
class Part:
    """Keys or values of a layer: of each head the first `coded` as codes, those behind them as they are.

    span: tokens that share a scale, width: channels that do. scale, low: a row for each group of tokens of a head.
    """

    codes: UInt8[Tensor, "coded D*bits/8"]
    scale: Float[Tensor, "groups D/width"]
    low: Float[Tensor, "groups D/width"]
    rest: Float[Tensor, "rest D"]
    lengths: tuple[int, ...]
    coded: tuple[int, ...]
    span: int
    width: int
    bits: int

    @property
    def bytes(self) -> int:
        return sum(part.nbytes for part in (self.codes, self.scale, self.low, self.rest))

    def unpack(self) -> Float[Tensor, "n D"]:
        if not len(self.codes):
            return self.rest
        exact = torch.promote_types(self.rest.dtype, torch.float32)
        codes = unpack(self.codes, self.bits).view(len(self.codes), -1, self.width)
        scale, low = (_of_tokens(one.to(exact), sizes(self.coded, self.span)) for one in (self.scale, self.low))
        made = torch.addcmul(low[..., None], codes, scale[..., None]).flatten(1).to(self.rest.dtype)
        if not len(self.rest):
            return made
        of_codes, of_rest = (sent(places, made.device) for places in split(self.lengths, self.coded))
        whole = made.new_empty(sum(self.lengths), made.shape[1])
        whole[of_codes], whole[of_rest] = made, self.rest
        return whole


def sizes(coded: Sequence[int], span: int) -> Int[Tensor, " groups"]:
    """Tokens of each group, head by head: a head's last may be shorter."""
    ends = [torch.tensor([span] * (n // span) + [n % span] * (n % span > 0), dtype=torch.long) for n in coded]
    return torch.cat(ends)


def split(lengths: Sequence[int], coded: Sequence[int]) -> tuple[Int[Tensor, " coded"], Int[Tensor, " rest"]]:
    """Where the first `coded` entries of each head lie among all, and where those behind them do."""
    first, inside, behind = 0, [], []
    for length, n in zip(lengths, coded, strict=True):
        inside.append(torch.arange(first, first + n))
        behind.append(torch.arange(first + n, first + length))
        first += length
    return torch.cat(inside), torch.cat(behind)


def _of_tokens(groups: Float[Tensor, "groups m"], size: Int[Tensor, " groups"]) -> Float[Tensor, "coded m"]:
    """The row of the group that each token is in."""
    if len(size) == int(size.sum()):  # a token each
        return groups
    return groups[sent(torch.arange(len(size)).repeat_interleave(size), groups.device)]


def part(
    full: Float[Tensor, "n D"],
    lengths: Sequence[int],
    coded: Sequence[int],
    *,
    bits: int,
    span: int = 1,
    width: int = 1,
    half: bool = True,
) -> Part:
    """Quantise the first `coded` entries of each head, in groups of `span` tokens and `width` channels.

    half: scales are kept in float16. Raises UsageError for values beyond its range.
    """
    inside, behind = (sent(places, full.device) for places in split(lengths, coded))
    exact = (
        full[inside].to(torch.promote_types(full.dtype, torch.float32)).view(len(inside), full.shape[1] // width, width)
    )
    size = sizes(coded, span)
    together = exact[sent(_members(size, span), full.device)]
    low, high = together.amin(dim=(1, 3)), together.amax(dim=(1, 3))
    kind = torch.float16 if half else full.dtype
    scale, low = ((high - low) / (2**bits - 1)).to(kind), low.to(kind)
    if not (scale.isfinite().all() and low.isfinite().all()):
        raise UsageError("keys or values are too large for scales in float16: use scales='model' (cache.scales=model)")
    step, zero = (_of_tokens(one.to(exact.dtype), size)[..., None] for one in (scale, low))
    # A group of equal values has no step: its codes are 0, and it is read back as it was.
    codes = torch.where(step > 0, (exact - zero) / step, 0).round().clamp(0, 2**bits - 1)
    packed = pack(codes.flatten(1).to(torch.uint8), bits)
    return Part(packed, scale, low, full[behind], tuple(lengths), tuple(coded), span, width, bits)


def _members(size: Int[Tensor, " groups"], span: int) -> Int[Tensor, "groups span"]:
    """The tokens of each group; a short one names its last again, which changes neither minimum nor maximum."""
    first = size.cumsum(0) - size
    return first[:, None] + torch.minimum(torch.arange(span), size[:, None] - 1)


@dataclass(frozen=True, eq=False)
class Parts:
    """Keys and values that are packed apart."""

    keys: Part
    values: Part

    @property
    def bytes(self) -> int:
        return self.keys.bytes + self.values.bytes

    def unpack(self) -> tuple[Tensor, Tensor]:
        return self.keys.unpack(), self.values.unpack()


def as_it_is(full: Float[Tensor, "n D"], lengths: Sequence[int]) -> Part:
    """All entries in full precision."""
    codes, none = full.new_empty(0, 0, dtype=torch.uint8), full.new_empty(0, 0)
    return Part(codes, none, none, full, tuple(lengths), (0,) * len(lengths), 1, 1, 8)


def padded(flat: Float[Tensor, "n D"], lengths: Sequence[int]) -> Float[Tensor, "heads longest D"]:
    """Entries head by head as a rectangle; what lies behind a head's own is finite."""
    longest = max(lengths)
    if min(lengths) == longest:
        return flat.view(len(lengths), longest, flat.shape[1])
    size = torch.tensor(lengths)
    place = (size.cumsum(0) - size)[:, None] + torch.arange(longest)
    return flat[sent(place.clamp(max=len(flat) - 1), flat.device)]
