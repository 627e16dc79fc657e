"""Rotary positions: moving queries to other positions, and taking theirs away.

Both rotations are the model's own: its cosines and sines, at its precision. Whatever the model multiplies them by
(YaRN's attention scaling) is divided out, since what has been through the model carries it already.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from echokv.scores import accumulator


class Angles(NamedTuple):
    """Cosines and sines of some positions, each [n, D], in float32, or float64 for a float64 model."""

    cos: Float[Tensor, "n D"]
    sin: Float[Tensor, "n D"]

    def turn(self, x: Float[Tensor, "... n D"]) -> Float[Tensor, "... n D"]:
        """Rotate from position 0 to these."""
        return x * self.cos + quarter_turn(x) * self.sin

    def back(self, x: Float[Tensor, "... n D"]) -> Float[Tensor, "... n D"]:
        """Rotate from these positions to 0."""
        return x * self.cos - quarter_turn(x) * self.sin

    def undo(self, x: Float[Tensor, "... n D"]) -> Float[Tensor, "... n D"]:
        """`back`, exact although float32 cosines and sines are a little off the unit circle."""
        return self.back(x) / (self.cos.square() + self.sin.square())

    def mean_turn(self) -> Float[Tensor, "D D"]:
        """The mean of the rotation matrices to these positions: a column vector's image is `mean_turn() @ x`."""
        eye = torch.eye(self.cos.shape[-1], dtype=self.cos.dtype, device=self.cos.device)
        cos, sin = self.cos.mean(dim=0), self.sin.mean(dim=0)
        return (eye * cos + quarter_turn(eye) * sin).T


def angles(model: Any, positions: Int[Tensor, " n"], like: Tensor) -> Angles:
    """The angles of some positions, on the device of a tensor and at the precision in which it is scored."""
    rotary: Any = model.model.rotary_emb
    exact = accumulator(like.dtype)
    positions = positions.to(like.device)
    cos, sin = rotary(torch.empty(0, dtype=exact, device=like.device), positions[None])
    # Of a model on several devices the rotary embedding may lie on another than this layer.
    return Angles(*(part[0].to(like.device, exact) / rotary.attention_scaling for part in (cos, sin)))


def quarter_turn(x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
    """Rotate each (i, i + D/2) pair by 90 degrees, the layout of all supported models."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)
