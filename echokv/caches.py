"""An evicted cache for transformers' own `generate`: it knows how many tokens there have been."""

import inspect
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from echokv.errors import UsageError
from echokv.session import Session
from echokv.sliding import Ring


class EvictedLayer(DynamicLayer):  # type: ignore[misc]
    """The kept entries of one layer, and `gone` evicted ones that count as tokens seen.

    Of its length, transformers makes the positions of new tokens and how many of the ids that it is given are new; a
    plain layer that was shortened says too little, and the prompt would be fed again without an error. To masks the
    kept entries are the last before the new tokens, so that every new token sees all of them.
    """

    is_croppable = False

    def __init__(self, keys: Float[Tensor, "1 G kept D"], values: Float[Tensor, "1 G kept D"], gone: int) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys, self.values, self.gone = keys, values, gone

    def get_seq_length(self) -> int:
        return int(self.keys.shape[-2]) + self.gone

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return int(self.keys.shape[-2]) + query_length, self.gone

    def update(self, keys: Tensor, values: Tensor, *extra: Any, **more: Any) -> tuple[Tensor, Tensor]:
        if len(keys) != len(self.keys):
            raise UsageError(
                f"{len(keys)} rows are fed to a cache of {len(self.keys)}: for beams or several samples call "
                f"batch_repeat_interleave({len(keys)}) on the cache first"
            )
        found: tuple[Tensor, Tensor] = super().update(keys, values, *extra, **more)
        return found

    def crop(self, *_: Any, **__: Any) -> None:
        raise UsageError("an evicted cache cannot be cropped: what was evicted does not come back")

    def reset(self) -> None:
        raise UsageError("an evicted cache cannot be reset and filled anew: compress the other prompt")


def cache_of(session: Session) -> Cache:
    """A session's cache, for one row of `generate` or of the model itself.

    Masks of transformers are of one length for all layers, and tell nothing of heads. Raises UsageError where that is
    not so.
    """
    prefill, fed = session.prefill, len(session.fed)
    kept = session.selection.kept
    if any(heads != [kept[0][0]] * prefill.groups for heads in kept) or session.selection.heads != prefill.groups:
        raise UsageError(
            "layers or heads keep unequally many tokens, for which transformers has no mask: use this object's own "
            "generate, or a press that keeps equally many"
        )
    gone = prefill.end - kept[0][0]
    layers: dict[int, Any] = {}
    for layer, place in enumerate(prefill.places):
        keys, values = prefill.keys[layer], prefill.values[layer]
        if fed:
            keys = torch.cat([keys, session.tail_keys[layer]], dim=1)
            values = torch.cat([values, session.tail_values[layer]], dim=1)
        layers[place] = EvictedLayer(keys[None], values[None], gone)
    sliding = sorted(set(range(len(layers) + len(session.rings))) - layers.keys())
    layers |= {place: _sliding(ring, prefill.end + fed) for place, ring in zip(sliding, session.rings, strict=True)}
    return Cache(layers=[layers[place] for place in sorted(layers)])


def _sliding(ring: Ring, end: int) -> DynamicSlidingWindowLayer:
    """Transformers' own layer, as if it had seen `end` tokens: it holds one token less than the window."""
    layer = DynamicSlidingWindowLayer(ring.window)
    keys, values = (part[None, :, max(0, part.shape[1] - ring.window + 1) :] for part in ring.ordered(end))
    layer.lazy_initialization(keys, values)
    layer.keys, layer.values, layer.cumulative_length = keys, values, end
    return layer


def arguments(session: Session, ids: Int[Tensor, " n"]) -> dict[str, Any]:
    """What `model.generate` is given: all ids, a mask of ones, and the cache that has seen all but the last of them."""
    name = cache_name(session.prefill.model)
    return {"input_ids": ids[None], "attention_mask": torch.ones_like(ids)[None], name: cache_of(session)}


def cache_name(model: Any) -> str:
    """What the installed transformers calls the argument of a model that takes its cache."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
