"""What KVQuant measures of a model beforehand, as a file holds it, and keys that are coded by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int, UInt8
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor

from echokv.codecs import index_bytes
from echokv.errors import UsageError
from echokv.installed import called
from echokv.packing import pack, unpack
from echokv.pointed import ends, nearest, rows


@dataclass(frozen=True, eq=False)
class Calibration:
    """Of a model's layers with full attention: G KV heads each, D channels a head.

    low, high: the range of each channel of the keys as they are before RoPE; `share` of its numbers lie within.
    keys, values: by the bits of a code the points of each layer, ascending, in units of a range's half width from its
        middle.
    """

    low: Float[Tensor, "layers G D"]
    high: Float[Tensor, "layers G D"]
    keys: Mapping[int, Float[Tensor, "layers points"]]
    values: Mapping[int, Float[Tensor, "layers points"]]
    share: float

    def save(self, path: Path) -> None:
        """Write it as float32. Raises OSError where that is not possible."""
        tensors = {"low": self.low, "high": self.high}
        tensors |= {f"keys.{bits}": points for bits, points in self.keys.items()}
        tensors |= {f"values.{bits}": points for bits, points in self.values.items()}
        content = {
            name: part.float().cpu().clone(memory_format=torch.contiguous_format) for name, part in tensors.items()
        }
        save_file({**content, "share": torch.tensor(self.share, dtype=torch.float64)}, path)

    @classmethod
    def read(cls, path: str) -> Calibration:
        """Raises UsageError for a file that cannot be read or has another content."""
        try:
            found = load(Path(path).read_bytes())
            keys, values = ({bits: found[f"{kind}.{bits}"] for bits in (2, 4) if f"{kind}.{bits}" in found}
                            for kind in ("keys", "values"))  # fmt: skip
            made = cls(found["low"], found["high"], keys, values, float(found["share"]))
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
        except (SafetensorError, KeyError) as error:
            raise UsageError(f"{path} holds no calibration: make it by {called('calibrate')} MODEL") from error
        wanted = {(bits, *one[bits].shape) for one in (keys, values) for bits in one}
        if keys.keys() != values.keys() or wanted != {(bits, len(made.low), 2**bits) for bits in keys}:
            raise UsageError(f"{path} does not have its points for every layer: make it again")
        return made


@dataclass(frozen=True, eq=False)
class Ranged:
    """Coded keys of a layer, n of all heads, by ranges and points that are known beforehand.

    far, channel: the outliers of each key, at both ends of its channels together, and where they lie.
    middle, half: of the range of each channel, of each head that has so many keys (`sizes`). These and the points are
        the model's, shared by all prompts: `bytes` are those of the other tensors.
    """

    codes: UInt8[Tensor, "n D*bits/8"]
    far: Float[Tensor, "outliers n"]
    channel: Int[Tensor, "outliers n"]
    middle: Float[Tensor, "heads D"]
    half: Float[Tensor, "heads D"]
    sizes: tuple[int, ...]
    points: Float[Tensor, " points"]
    bits: int

    @property
    def bytes(self) -> int:
        return sum(part.nbytes for part in (self.codes, self.far, self.channel))

    def unpack(self) -> Float[Tensor, "n D"]:
        """At the precision of the points."""
        middle, half = (rows(part, self.sizes) for part in (self.middle, self.half))
        made = torch.addcmul(middle, self.points[unpack(self.codes, self.bits).int()], half)
        return made.scatter(1, self.channel.long().T, self.far.to(made.dtype).T)


@dataclass(frozen=True, eq=False)
class Coder:
    """Codes keys of a layer by its calibration.

    low, high: of each head's channels. points: 2^bits. outliers: of each key so many at either end.
    dtype: the model's, of outliers.
    """

    bits: int
    low: Float[Tensor, "heads D"]
    high: Float[Tensor, "heads D"]
    points: Float[Tensor, " points"]
    outliers: int
    dtype: torch.dtype

    def __call__(self, keys: Float[Tensor, "n D"], sizes: Sequence[int]) -> Ranged:
        """Code keys as they are before RoPE, so many of each head."""
        low, high, points = (part.to(keys.device, keys.dtype) for part in (self.low, self.high, self.points))
        # A channel that never changed has no width: whatever differs from it lies beyond all others.
        middle, half = (low + high) / 2, ((high - low) / 2).clamp(min=torch.finfo(keys.dtype).tiny)
        zero, unit = (rows(part, sizes) for part in (middle, half))
        units = (keys - zero) / unit
        _, _, channel = ends(units.T, self.outliers)
        far = keys.T.gather(0, channel).to(self.dtype)
        channel = channel.to(torch.int16 if index_bytes(keys.shape[1]) == 2 else torch.int32)
        codes = pack(nearest(units, points), self.bits)
        return Ranged(codes, far, channel, middle, half, tuple(sizes), points, self.bits)
