"""Rotary positions: moving queries to other positions, and taking theirs away.

Both rotations are the model's own: its cosines and sines, at its precision. Whatever the model multiplies them by
(YaRN's attention scaling) is divided out, since what has been through the model carries it already.
"""

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from echokv.devices import sent
from echokv.errors import UsageError
from echokv.scores import accumulator


class Angles(NamedTuple):
    """Cosines and sines of some positions, each [n, R], in float32, or float64 for a float64 model.

    R, the numbers of a head that are turned, is D, or less where the model's RoPE is partial: the first R are, the
    others stay. It is 0 in a layer without RoPE.
    """

    cos: Float[Tensor, "n R"]
    sin: Float[Tensor, "n R"]

    def turn(self, x: Float[Tensor, "... n D"]) -> Float[Tensor, "... n D"]:
        """Rotate from position 0 to these."""
        own, rest = self._parts(x)
        return _joined(own * self.cos + quarter_turn(own) * self.sin, rest)

    def back(self, x: Float[Tensor, "... n D"]) -> Float[Tensor, "... n D"]:
        """Rotate from these positions to 0."""
        own, rest = self._parts(x)
        return _joined(own * self.cos - quarter_turn(own) * self.sin, rest)

    def undo(self, x: Float[Tensor, "... n D"]) -> Float[Tensor, "... n D"]:
        """`back`, exact although float32 cosines and sines are a little off the unit circle."""
        own, rest = self._parts(self.back(x))
        return _joined(own / (self.cos.square() + self.sin.square()), rest)

    def mean_turn(self, dim: int) -> Float[Tensor, "D D"]:
        """The mean of the rotation matrices to these positions: a column vector's image is `mean_turn(D) @ x`."""
        eye = torch.eye(dim, dtype=self.cos.dtype, device=self.cos.device)
        mean = Angles(self.cos.mean(dim=0, keepdim=True), self.sin.mean(dim=0, keepdim=True))
        return mean.turn(eye).T

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        turned = self.cos.shape[-1]
        return x[..., :turned], x[..., turned:]


def _joined(own: Tensor, rest: Tensor) -> Tensor:
    return torch.cat([own, rest], dim=-1) if rest.shape[-1] else own


def rope_type(config: Any) -> str:
    """By which rule the model's RoPE has its frequencies, such as "default", "yarn" or "dynamic".

    Where sliding layers have one of their own, both are named.
    """
    known = getattr(config, "rope_parameters", None) or {}
    own = [kind for kind in known.values() if isinstance(kind, Mapping)] or [known]
    return "+".join(sorted({str(one.get("rope_type", "default")) for one in own}))


def rotates(config: Any, layer: int) -> bool:
    """Whether a layer, counted among all of the model's, turns its queries and keys by their positions."""
    marked = getattr(config, "no_rope_layers", None)  # its name notwithstanding, 1 stands for RoPE
    return not marked or bool(marked[layer])


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


def angles(model: Any, layer: int, positions: Int[Tensor, " n"], like: Tensor) -> Angles:
    """The angles of some positions, on the device of a tensor and at the precision in which it is scored.

    layer: one with full attention, counted among all of the model's.

    Raises UsageError for positions that a dynamic RoPE does not leave alone.
    """
    check_reach(model.config, 1 + max(positions.tolist(), default=0))
    rotary: Any = model.model.rotary_emb
    exact = accumulator(like.dtype)
    positions, empty = sent(positions, like.device), torch.empty(0, dtype=exact, device=like.device)
    if not rotates(model.config, layer):
        return Angles(empty.expand(len(positions), 0), empty.expand(len(positions), 0))
    # A model whose sliding layers have a RoPE of their own asks for the kind of layer.
    kind = {"layer_type": "full_attention"} if "layer_type" in inspect.signature(rotary.forward).parameters else {}
    parts = rotary(empty, positions[None], **kind)
    scaling = getattr(rotary, "full_attention_attention_scaling" if kind else "attention_scaling")
    # Of a model on several devices the rotary embedding may lie on another than this layer.
    return Angles(*(part[0].to(like.device, exact) / scaling for part in parts))


def quarter_turn(x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
    """Rotate each (i, i + D/2) pair by 90 degrees, the layout of all supported models."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)
