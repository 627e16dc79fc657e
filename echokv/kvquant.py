"""KVQuant: codes that name the points of a scale, outliers beside them in full, keys as they are before RoPE.

Importing this module imports no torch: a plan needs the fields alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, ClassVar, Literal

from echokv.codecs import Codec, index_bytes
from echokv.errors import UsageError

if TYPE_CHECKING:
    from echokv.packing import Entries, Packed
    from echokv.shapes import Shape


@dataclass(frozen=True, kw_only=True)
class NonUniform(Codec):
    """Codes that name points of a range, beside them a range's outliers in full: what KVQuant's versions share.

    bits: of a code, 2 or 4. share: of the numbers that are no outliers, by which their count follows; 1 for none.
    sinks: first entries of each head in full precision, the prompt's first tokens where the policy keeps them.
    scales: a range's middle and half width are kept in float16, or in the model's own dtype ("model").
    """

    bits: int = 4
    share: float = 0.99
    sinks: int = 5
    scales: Literal["float16", "model"] = "float16"
    turns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        who = type(self).__name__
        if self.bits not in (2, 4):
            raise UsageError(f"{who}.bits is {self.bits}; it must be 2 or 4")
        if not 0.5 <= self.share <= 1:
            raise UsageError(f"{who}.share is {self.share}; it must lie between 0.5 and 1, which leaves no outliers")
        if self.sinks < 0:
            raise UsageError(f"{who}.sinks is {self.sinks}; it must be at least 0")

    def check_model(self, shape: Shape) -> None:
        if shape.dim * self.bits % 8:
            raise UsageError(
                f"{type(self).__name__}.bits is {self.bits}: {shape.dim} codes of a token fill no whole bytes; take 4"
            )

    def outliers(self, n: int) -> int:
        """How many of n numbers that share a scale are outliers at either end."""
        return outliers(n, self.share)

    def coded(self, kept: int) -> int:
        """How many of a head's last entries are coded."""
        return max(0, kept - self.sinks)

    def beside(self, n: int, size: int) -> int:
        """Bytes of the outliers of n numbers that share a scale, and of where each lies. size: of a number."""
        return 2 * self.outliers(n) * (size + index_bytes(n))

    def scale(self, size: int) -> int:
        """Bytes of a range's middle and half width."""
        return 2 * (2 if self.scales == "float16" else size)


@dataclass(frozen=True, kw_only=True)
class KVQuant(NonUniform):
    """KVQuant (Hooper et al., NeurIPS 2024, section 3) in a small version, calibrated by the prompt: KVQuant-p.

    Keys are turned back to position 0 before they are coded and forward again when they are read. Of n numbers that
    share a scale the `outliers(n)` lowest and as many highest are kept in the model's dtype; the others are mapped from
    [min, max] to [-1, 1], and a code names the nearest of 2^bits points, the lower one at a tie. Values share a scale
    by token, in one head: heads keep tokens of their own here, while the original takes a token's values of all heads.

    Keys share a scale by channel among what a head keeps of this prompt. The original measures their ranges and, by
    k-means with Fisher weights, the points on other text beforehand (`KVQuantC`); this needs nothing beforehand, and
    of a channel of 128 tokens it has one outlier at either end.

    points: those of NormalFloat ("nf", Dettmers et al. 2023, appendix E), or equally far apart ("uniform").
    """

    points: Literal["nf", "uniform"] = "nf"

    @property
    def label(self) -> str:
        return f"KVQuant-p-{self.bits}"

    def bytes(self, kept: int, dim: int, size: int) -> int:
        coded, scale = self.coded(kept), self.scale(size)
        full = 2 * (kept - coded) * dim * size
        codes = 2 * coded * dim * self.bits // 8
        by_channel = self.beside(coded, size) + (scale if coded else 0)
        return full + codes + dim * by_channel + coded * (self.beside(dim, size) + scale + POSITION)

    def grid(self) -> list[float]:
        """The 2^bits points, ascending from -1 to 1."""
        if self.points == "nf":
            return normal_float(self.bits)
        return [2 * i / (2**self.bits - 1) - 1 for i in range(2**self.bits)]

    def pack(self, entries: Entries) -> Packed:
        from echokv.pointed import Packer, layer

        packer = Packer(self.bits, self.grid(), entries.keys.dtype, self.scales == "float16", self.outliers)
        return layer(entries, list(map(self.coded, entries.lengths)), packer.by_channel, packer.by_token)


POSITION = 4  # bytes of a coded key's position, by which it is turned


def outliers(n: int, share: float) -> int:
    """How many of n numbers are outliers at either end where a share of them is to be none.

    As many as lie at or beyond the (1 - share) / 2 quantile, interpolated, if all are different; never all.
    """
    if share == 1 or n < 3:
        return 0
    return min(int(round((1 - share) / 2 * (n - 1), 9)) + 1, (n - 1) // 2)


def normal_float(bits: int) -> list[float]:
    """NormalFloat: quantiles of a normal distribution scaled to [-1, 1], 0 among them, one more above it than below."""
    edge, half = 0.9677083, 2 ** (bits - 1)  # the outermost quantile, as the authors set it
    quantile = NormalDist().inv_cdf
    above = [quantile(edge + (0.5 - edge) * i / half) for i in range(half)]
    below = [-quantile(edge + (0.5 - edge) * i / (half - 1)) for i in range(half - 1)]
    return sorted(x / above[0] for x in (*above, 0.0, *below))
