"""The one place where the library meets a transformers model: a registered attention function.

Llama, Mistral, Qwen2 and Qwen3 look their attention up by the name in `config._attn_implementation` and pass
every extra keyword argument of `model(...)` on to it. Under our name it receives the post-RoPE queries, keys
and values of each layer and leaves the attention itself to an `Observer`: one for the prefill, one for decoding.
No mask function is registered under the name, so transformers builds none and masking is the observer's.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from echokv.linear import quick

NAME = "echokv"


class Observer(Protocol):
    """Computes the attention of one forward pass, layer by layer, and keeps what it wants of it."""

    def attend(
        self,
        layer: int,
        query: Float[Tensor, "batch H new D"],
        key: Float[Tensor, "batch G new D"],
        value: Float[Tensor, "batch G new D"],
        scaling: float,
    ) -> Float[Tensor, "batch new H D"]: ...


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, _mask: None, *, observer: Observer, **extra: Any
) -> tuple[Tensor, None]:
    return observer.attend(module.layer_idx, query, key, value, extra["scaling"]), None


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
    with _observed(model), quick(model, input_ids.numel()):
        out = model(
            input_ids=input_ids,
            position_ids=position_ids,
            use_cache=False,
            logits_to_keep=1,
            observer=observer,
        )
    logits: Tensor = out.logits[:, -1]
    return logits
