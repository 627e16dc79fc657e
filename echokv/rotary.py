"""Rotary positions: moving queries to other positions, and taking theirs away.

Both rotations are the model's own: its cosines and sines, at its precision. Whatever the model multiplies them by
(YaRN's attention scaling) is divided out, since what has been through the model carries it already.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from echokv.devices import sent
from echokv.errors import UsageError
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


def rope_type(config: Any) -> str:
    """By which rule the model's RoPE has its frequencies, such as "default", "yarn" or "dynamic"."""
    return str((getattr(config, "rope_parameters", None) or {}).get("rope_type", "default"))


def check_reach(config: Any, end: int) -> None:
    """Raise UsageError if `end` positions are more than a dynamic RoPE leaves alone.

    Beyond the model's positions it changes its frequencies for whatever is fed next, while the keys at hand, and other
    sequences, have those of before: no two orders of work would give the same answer.
    """
    if end > config.max_position_embeddings and "dynamic" in rope_type(config):
        raise UsageError(
            f"{end} positions are wanted, and this model's dynamic RoPE changes all keys beyond "
            f"{config.max_position_embeddings}: shorten the prompt (model.prompt_limit) or what follows it"
        )


def angles(model: Any, positions: Int[Tensor, " n"], like: Tensor) -> Angles:
    """The angles of some positions, on the device of a tensor and at the precision in which it is scored.

    Raises UsageError for positions that a dynamic RoPE does not leave alone.
    """
    check_reach(model.config, 1 + max(positions.tolist(), default=0))
    rotary: Any = model.model.rotary_emb
    exact = accumulator(like.dtype)
    positions = sent(positions, like.device)
    cos, sin = rotary(torch.empty(0, dtype=exact, device=like.device), positions[None])
    # Of a model on several devices the rotary embedding may lie on another than this layer.
    return Angles(*(part[0].to(like.device, exact) / rotary.attention_scaling for part in (cos, sin)))


def quarter_turn(x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
    """Rotate each (i, i + D/2) pair by 90 degrees, the layout of all supported models."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)
