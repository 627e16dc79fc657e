"""How kept keys and values are stored: as they are, or quantised. Orthogonal to which are kept.

A codec packs once, after the choice, what each head keeps of the prompt, and attention reads it back a layer at a time.
What is scored is the full cache. Importing this module imports no torch: a plan needs the fields alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from echokv.errors import UsageError
from echokv.fields import check

if TYPE_CHECKING:
    from echokv.packing import Entries, Packed
    from echokv.shapes import Shape


@dataclass(frozen=True, kw_only=True)
class Codec:
    """What packs the entries that a layer keeps; its fields' values are held against their annotations.

    fake: what is packed is read back once, into a buffer of full precision: the same answers, without the memory saved.
    """

    fake: bool = False
    turns: ClassVar[bool] = False  # whether it codes keys as they are before RoPE, so that positions must be known

    def __post_init__(self) -> None:
        check(self)

    @property
    def label(self) -> str:
        """What a table calls it."""
        return type(self).__name__

    @property
    def plain(self) -> bool:
        """Whether it stores all as it is: the harness then takes it for no codec."""
        return False

    @property
    def files(self) -> dict[str, str]:
        """Fields that name files it reads: their contents are part of what it is."""
        return {}

    def check_model(self, shape: Shape) -> None:
        """Raise UsageError for a model whose heads cannot be packed, or that a file it reads is not of."""

    def bytes(self, kept: int, dim: int, size: int) -> int:
        """Bytes that a head of `kept` entries takes. dim: D. size: bytes of a number in full precision."""
        raise NotImplementedError

    def pack(self, entries: Entries) -> Packed:
        """The entries of one layer, packed. Raises UsageError for values that the scales cannot hold."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Kivi(Codec):
    """KIVI (Liu et al., ICML 2024, section 3): keys by channel, values by token, asymmetric to 2 or 4 bits.

    In each group, low = min x, scale = (max x - low) / (2^bits - 1), code = round((x - low) / scale), to even at a tie;
    read back as code * scale + low. Keys are post-RoPE. A group of keys is `group` consecutive kept tokens of one
    head and channel, a group of values `group` consecutive channels of one token. Groups are made of kept tokens, so
    that after an eviction keys have other ranges than KIVI would give them on the whole prompt.

    bits: of a code; 16 stores everything as it is.
    residual: R, last tokens in full precision. rule: "last", the last R of each head; "kivi", as the public code
        leaves them after a prefill: of n tokens the last R values and the last n mod R keys.
    partial: of the last n mod group keys, "short" makes a group of their own, "full" leaves them as they are.
    scales: scale and low are kept in float16, or in the model's own dtype ("model"), as the public code does. Codes
        are computed from them as they are kept.

    Tokens fed after the prompt stay in full precision.
    """

    bits: int = 2
    group: int = 32
    residual: int = 0
    rule: Literal["last", "kivi"] = "last"
    partial: Literal["short", "full"] = "short"
    scales: Literal["float16", "model"] = "float16"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits not in (1, 2, 4, 8, 16):
            raise UsageError(f"Kivi.bits is {self.bits}; it must be 1, 2, 4, 8, or 16, which stores all as it is")
        for name, least in (("group", 1), ("residual", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"Kivi.{name} is {getattr(self, name)}; it must be at least {least}")
        if self.rule == "kivi" and self.residual < 1:
            raise UsageError("Kivi.residual is 0; under rule=kivi it must be at least 1, such as residual=128")

    @property
    def label(self) -> str:
        return f"KIVI-{self.bits}"

    @property
    def plain(self) -> bool:
        return self.bits == 16

    def check_model(self, shape: Shape) -> None:
        dim = shape.dim
        if dim % self.group:
            raise UsageError(
                f"Kivi.group is {self.group}, which does not divide this model's {dim} channels a head: "
                f"take a divisor, such as group={_divisor(dim, self.group)}"
            )
        if dim * self.bits % 8:
            raise UsageError(f"Kivi.bits is {self.bits}: {dim} codes of a token fill no whole bytes; take more bits")

    def coded(self, kept: int) -> tuple[int, int]:
        """How many of a head's first keys, and of its first values, are quantised."""
        if self.bits == 16:
            return 0, 0
        values = max(0, kept - self.residual)
        keys = kept - kept % self.residual if self.rule == "kivi" else values
        return keys - (keys % self.group if self.partial == "full" else 0), values

    def bytes(self, kept: int, dim: int, size: int) -> int:
        keys, values = self.coded(kept)
        full = (2 * kept - keys - values) * dim * size
        codes = (keys + values) * dim * self.bits // 8
        each = 2 * (2 if self.scales == "float16" else size)
        return full + codes + each * (-(-keys // self.group) * dim + values * (dim // self.group))

    def pack(self, entries: Entries) -> Packed:
        from echokv.packing import Parts, as_it_is, part

        lengths = entries.lengths
        if self.bits == 16:
            return Parts(as_it_is(entries.keys, lengths), as_it_is(entries.values, lengths))
        keys, values = zip(*map(self.coded, lengths), strict=True)
        half = self.scales == "float16"
        return Parts(
            part(entries.keys, lengths, keys, bits=self.bits, span=self.group, half=half),
            part(entries.values, lengths, values, bits=self.bits, width=self.group, half=half),
        )


def _divisor(dim: int, group: int) -> int:
    return max(size for size in range(1, min(dim, group) + 1) if dim % size == 0)


def index_bytes(n: int) -> int:
    """Bytes of a place among n; where heads of a layer lie on both sides of the limit, all take the longer form."""
    return 2 if n <= 2**15 else 4
