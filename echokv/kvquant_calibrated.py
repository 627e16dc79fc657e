"""KVQuant with ranges of key channels and points that were measured beforehand, on other text.

Importing this module imports no torch: a plan needs the fields alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from echokv.errors import UsageError
from echokv.installed import called
from echokv.kvquant import POSITION, NonUniform

if TYPE_CHECKING:
    from echokv.calibrated import Calibration
    from echokv.packing import Entries, Packed
    from echokv.shapes import Shape


@dataclass(frozen=True, kw_only=True)
class KVQuantC(NonUniform):
    """KVQuant (Hooper et al., NeurIPS 2024, section 3) in a small version, calibrated beforehand: KVQuant-c.

    A key channel's range is the one that `share` of its numbers had in the calibration, of each layer and KV head;
    keys are turned back to position 0 first. A key's outliers are its `outliers(D)` lowest channels and as many
    highest, by where they lie in their ranges, whether they lie beyond them or not: so many places the original's
    public code has too where it caps outliers, and bytes follow from the number of tokens. What lies beyond its range
    and finds no place is read back as the outermost point. Values have their ranges by token, found as they come, as in
    `KVQuant`. The points are a layer's own, one set for keys and one for values, by k-means without Fisher weights.

    file: written by `python -m eval.calibrate MODEL`, for this model.
    """

    file: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.file is None:
            raise UsageError(
                f"KVQuantC.file is missing; it must be a calibration, which {called('calibrate')} MODEL makes "
                "(cache.file=FILE)"
            )

    @property
    def label(self) -> str:
        return f"KVQuant-c-{self.bits}"

    @property
    def files(self) -> dict[str, str]:
        return {"file": str(self.file)}

    @cached_property
    def calibration(self) -> Calibration:
        """What the file holds, read once. Raises UsageError for one that cannot be read."""
        from echokv.calibrated import Calibration

        return Calibration.read(str(self.file))

    def check_model(self, shape: Shape) -> None:
        super().check_model(shape)
        made = self.calibration
        if self.bits not in made.keys:
            has = " and ".join(map(str, made.keys))
            raise UsageError(
                f"KVQuantC.bits is {self.bits}, and {self.file} has points for {has} bits: make one with "
                f"analysis.bits=[{self.bits}]"
            )
        if made.share != self.share:
            raise UsageError(
                f"KVQuantC.share is {self.share}, and the ranges of {self.file} are for {made.share}: take that, or "
                f"make one with analysis.share={self.share}"
            )
        of_model = (len(shape.places), shape.groups, shape.dim)
        if tuple(made.low.shape) != of_model:
            has, wanted = ("{} layers of {} KV heads of {} channels".format(*one) for one in (made.low.shape, of_model))
            raise UsageError(f"{self.file} is of {has}, the model has {wanted}: make one of this model")

    def bytes(self, kept: int, dim: int, size: int) -> int:
        coded = self.coded(kept)
        full = 2 * (kept - coded) * dim * size
        codes = 2 * coded * dim * self.bits // 8
        return full + codes + coded * (2 * self.beside(dim, size) + self.scale(size) + POSITION)

    def pack(self, entries: Entries) -> Packed:
        from echokv.calibrated import Coder
        from echokv.pointed import Packer, layer

        origin, dim, dtype = entries.origin, entries.keys.shape[-1], entries.keys.dtype
        assert origin is not None
        made, heads, count = self.calibration, list(origin.heads), self.outliers(dim)
        low, high = made.low[origin.layer, heads], made.high[origin.layer, heads]
        keys = Coder(self.bits, low, high, made.keys[self.bits][origin.layer], count, dtype)
        points = made.values[self.bits][origin.layer].tolist()
        values = Packer(self.bits, points, dtype, self.scales == "float16", self.outliers)
        return layer(entries, list(map(self.coded, entries.lengths)), keys, values.by_token)
