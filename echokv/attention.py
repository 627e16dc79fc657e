"""The one place where the library meets a transformers model: a registered attention function.

Models look their attention up by the name in `config._attn_implementation` and pass every extra keyword argument of
`model(...)` on to it. Under our name it receives the post-RoPE queries, keys and values of each layer, with what the
model says of that layer's attention, and leaves the attention itself to an `Observer`: one for the prefill, one for
decoding. No mask function is registered under the name, so transformers builds none and masking is the observer's.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from echokv.errors import UsageError

NAME = "echokv"


class Observer(Protocol):
    """Computes the attention of one forward pass, layer by layer, and keeps what it wants of it.

    Layers with full attention and those with a sliding window are numbered each by themselves.
    """

    def attend(
        self,
        layer: int,
        query: Float[Tensor, "batch H new D"],
        key: Float[Tensor, "batch G new D"],
        value: Float[Tensor, "batch G new D"],
        scaling: float,
    ) -> Float[Tensor, "batch new H D"]: ...

    def slide(
        self,
        layer: int,
        query: Float[Tensor, "batch H new D"],
        key: Float[Tensor, "batch G new D"],
        value: Float[Tensor, "batch G new D"],
        scaling: float,
        window: int,
    ) -> Float[Tensor, "batch new H D"]:
        """The same where a token sees itself and the window - 1 before it."""
        ...


@dataclass
class _Calls:
    """The attention calls of one forward pass, numbered in their order."""

    observer: Observer
    positions: int  # of the model
    full: int = 0
    sliding: int = 0

    def attend(self, query: Tensor, key: Tensor, value: Tensor, extra: dict[str, Any]) -> Tensor:
        window = extra.get("sliding_window")
        if window is None or window >= self.positions:  # one that is never full drops nothing
            self.full += 1
            return self.observer.attend(self.full - 1, query, key, value, extra["scaling"])
        self.sliding += 1
        return self.observer.slide(self.sliding - 1, query, key, value, extra["scaling"], window)


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, _mask: None, *, calls: _Calls, **extra: Any
) -> tuple[Tensor, None]:
    # Told before the weights are read where the configuration says so (`echokv.checkpoints`); no result is wrong.
    if extra.get("softcap") is not None or extra.get("s_aux") is not None:
        kind = "softcapped logits" if extra.get("softcap") is not None else "attention sinks of their own"
        raise UsageError(f"this model's layers have {kind}, which is not computed here: use another model")
    return calls.attend(query, key, value, extra), None


@contextmanager
def _observed(model: Any) -> Iterator[None]:
    """Route the model's attention through observers, and put the setting back whatever happens."""
    from transformers import AttentionInterface  # twice torch's own import; whoever has a model has paid for it

    AttentionInterface.register(NAME, _attention)
    before = model.config._attn_implementation
    model.config._attn_implementation = NAME
    try:
        yield
    finally:
        model.config._attn_implementation = before


@torch.no_grad()
def forward(
    model: Any,
    input_ids: Int[Tensor, "batch new"],
    position_ids: Int[Tensor, "batch new"],
    observer: Observer,
) -> Float[Tensor, "batch vocab"]:
    """Run the model once without any cache of its own and return the logits after the last token of each row.

    Positions are always explicit: the length of a shortened cache says nothing about them.
    """
    with _observed(model):
        out = model(
            input_ids=input_ids,
            position_ids=position_ids,
            use_cache=False,
            logits_to_keep=1,
            calls=_Calls(observer, model.config.max_position_embeddings),
        )
    logits: Tensor = out.logits[:, -1]
    return logits
