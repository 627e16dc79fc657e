"""Our presses where NVIDIA's kvpress expects one of its own: its pipeline, and what is built on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.cache_utils import DynamicLayer

from echokv.errors import UsageError
from echokv.further import compact
from echokv.prefilling import prefill
from echokv.press import Press


@dataclass
class PipelinePress:
    """A press for `pipeline(context, question=..., press=PipelinePress(SnapKV(), compression_ratio=0.5))`.

    compression_ratio: the share of tokens to remove, rounded so that at least so many go; kvpress's word and meaning.

    The context is read twice, by the caller and by our prefill. What follows must be fed outside the `with`, with
    positions that count evicted tokens, as kvpress's pipeline does. Raises UsageError for everything else: a ratio
    outside [0, 1), a cache other than a fresh DynamicCache, several prompts, sliding-window layers, a press that keeps
    unequally many tokens in layers or heads.
    """

    press: Press
    compression_ratio: float = 0.0
    _busy: bool = field(default=False, init=False, repr=False)
    _done: bool = field(default=False, init=False, repr=False)

    @contextmanager
    def __call__(self, model: Any) -> Iterator[None]:
        """Evict from the cache that the one forward pass within the `with` fills."""
        if not 0 <= self.compression_ratio < 1:
            raise UsageError(f"compression_ratio is {self.compression_ratio}; it must be at least 0 and below 1")

        def before(_module: Any, _given: tuple[Any, ...], _named: dict[str, Any]) -> None:
            if self._done and not self._busy:
                raise UsageError(
                    "a context has been compressed within this `with`, and more is fed: leave the `with` first and "
                    "pass position_ids, or use echokv.compress to generate"
                )

        def after(_module: Any, given: tuple[Any, ...], named: dict[str, Any], _out: Any) -> None:
            if self._busy:
                return
            self._busy = True
            try:
                cache = named.get("cache", named.get("past_key_values"))  # newer and older transformers
                self._compress(model, named.get("input_ids", given[0] if given else None), cache)
            finally:
                self._busy = False
            self._done = True

        decoder = model.get_decoder()
        self._done = False
        hooks = (
            decoder.register_forward_pre_hook(before, with_kwargs=True),
            decoder.register_forward_hook(after, with_kwargs=True),
        )
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _compress(self, model: Any, ids: Any, cache: Any) -> None:
        """Put what the press keeps of a context into the cache that holds all of it."""
        if not isinstance(ids, torch.Tensor):
            raise UsageError("the context is given without token ids: pass input_ids")
        layers = getattr(cache, "layers", [])
        if not layers or any(type(layer) is not DynamicLayer for layer in layers):
            raise UsageError("the cache is no plain DynamicCache of full-attention layers: pass past_key_values=one")
        if cache.get_seq_length() != ids.shape[-1]:
            raise UsageError(
                f"the cache holds {cache.get_seq_length()} tokens, the context {ids.shape[-1]}: pass an empty cache"
            )
        whole = prefill(model, ids, self.press.needs)
        budget = max(1, int(whole.length * (1 - self.compression_ratio)))
        small, selection = compact(whole, self.press.select(whole, budget))
        if whole.rings or any(heads != [small.length] * small.groups for heads in selection.kept):
            raise UsageError(
                f"{type(self.press).__name__} keeps unequally many tokens in layers or heads, for which the pipeline "
                "has no mask: take a press that keeps equally many, or echokv.compress"
            )
        for place, keys, values in zip(small.places, small.keys, small.values, strict=True):
            layers[place].keys, layers[place].values = keys[None], values[None]
