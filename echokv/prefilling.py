"""One full forward pass over the prompt, and everything a policy may ask of it."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from echokv.attention import forward
from echokv.capturing import Capture, Needs
from echokv.errors import UsageError
from echokv.generation import BARE, Generation
from echokv.inputs import prompts
from echokv.linear import quick
from echokv.moments import Moments
from echokv.packing import Packed
from echokv.rotary import Angles, angles, rotates
from echokv.scores import accumulator
from echokv.shapes import Shape
from echokv.shared import Shared
from echokv.sliding import Ring
from echokv.supported import refuse_unsupported

__all__ = ["Needs", "Prefill", "prefill"]  # presses take the first two from here

Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class Prefill:
    """What a full forward pass over a prompt of L tokens leaves; read-only, shared by all policies.

    Layers are those with full attention, which policies evict from, numbered among themselves.

    keys, values: per layer [G, L, D], keys post-RoPE.
    queries: per layer [H, w, D], post-RoPE, of the last w = min(needs.window, L) tokens.
    sums: per layer [H, L] of `column_sums`, or None if it was not asked for.
    moments: by the number of first tokens left out, per layer; see `query_moments`.
    sums_seconds, moments_seconds: how much of the prefill's time the column sums and the moments took.
    logits: [V] after the last prompt token, from the complete cache.
    ids: [L], the prompt; with what was evicted since, where a cache goes on (`echokv.further`).
    stop_ids: tokens that end an answer; none of them may be one of its first `min_new_tokens` tokens.
    generation: how an answer's logits are changed before the most probable token is taken.
    places: of each layer, which of all the model's layers it is.
    rings: what each sliding layer stores, which drops its keys itself.
    packed: the entries of each layer, where nothing but codes is stored of them; keys and values are read back.
    at: per layer the position of each entry, where a codec needs it and it is not the entry's place.
    shared: what policies that are at work side by side have computed of it for one another.
    """

    model: Any
    keys: Sequence[Float[Tensor, "G L D"]]
    values: Sequence[Float[Tensor, "G L D"]]
    queries: list[Float[Tensor, "H w D"]]
    sums: list[Float[Tensor, "H L"]] | None
    logits: Float[Tensor, " V"]
    ids: Int[Tensor, " L"]
    length: int
    scaling: float
    stop_ids: frozenset[int] = frozenset()
    min_new_tokens: int = 0
    generation: Generation = BARE
    sums_seconds: float = 0.0
    moments: dict[int, list[Moments]] = field(default_factory=dict)
    moments_seconds: float = 0.0
    texts: dict[str, list[int]] = field(default_factory=dict)
    places: tuple[int, ...] = ()
    rings: list[Ring] = field(default_factory=list)
    packed: Sequence[Packed] = ()
    at: Sequence[Int[Tensor, "G L"]] = ()
    shared: Shared = field(default_factory=Shared, init=False, repr=False)

    @property
    def end(self) -> int:
        """The position of the token that follows: how many there have been, evicted ones included."""
        return len(self.ids)

    @property
    def layers(self) -> int:
        return len(self.keys)

    @property
    def groups(self) -> int:
        """G, the number of KV heads."""
        return self.keys[0].shape[0]

    @property
    def heads(self) -> int:
        """H, the number of query heads."""
        return self.queries[0].shape[0]

    @property
    def shape(self) -> Shape:
        return Shape(self.places, self.groups, self.heads, self.keys[0].shape[-1])

    @property
    def entry_bytes(self) -> int:
        """Bytes of one token's key and value in one KV head of one layer."""
        return 2 * self.keys[0].shape[-1] * self.keys[0].element_size()

    def beside(self, more: int = 0) -> int:
        """Entries that the sliding layers store once so many more tokens have been fed, whatever is evicted."""
        return sum(ring.keys.shape[0] * min(ring.window, self.end + more) for ring in self.rings)

    def last_queries(self, layer: int, n: int) -> Float[Tensor, "H n D"]:
        """Post-RoPE queries of the last n prompt tokens. Raises UsageError if fewer were recorded."""
        recorded = self.queries[layer].shape[1]
        if n > recorded:
            raise UsageError(
                f"{n} window queries wanted, {recorded} recorded of a prompt of {self.length} tokens: "
                f"prefill with Needs(window={n}) or use a smaller window"
            )
        return self.queries[layer][:, recorded - n :]

    def column_sums(self) -> list[Float[Tensor, "H L"]]:
        """The recorded column sums. Raises UsageError if the prefill was not asked for them."""
        if self.sums is None:
            raise UsageError("column sums were not recorded: prefill with Needs(column_sums=True)")
        return self.sums

    def query_moments(self, skip: int) -> list[Moments]:
        """Moments of the queries of all prompt tokens but the first `skip`, before RoPE, per layer.

        Raises UsageError if the prefill was not asked for them.
        """
        if skip not in self.moments:
            raise UsageError(f"query moments were not recorded: prefill with Needs(moments=frozenset({{{skip}}}))")
        return self.moments[skip]

    def spelled(self, text: str) -> list[int]:
        """Token ids of a text. Raises UsageError if the prefill was not asked for them, or given no tokenizer."""
        if text not in self.texts:
            raise UsageError(
                f"the token ids of {text!r} were not recorded: prefill with Needs(texts=...) and tokenizer=TOKENIZER"
            )
        return self.texts[text]

    def share(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` computes of this prefill, once for all policies that are at work on it and use the same key."""
        return self.shared.get(key, make, self.logits.device)

    def turns(self, layer: int) -> bool:
        """Whether a layer has RoPE."""
        return rotates(self.model.config, self.places[layer])

    def angles(self, layer: int, positions: Int[Tensor, " n"]) -> Angles:
        """By how much a layer turns queries and keys of some positions, by the model's own RoPE; maybe not at all."""
        return angles(self.model, self.places[layer], positions, self.keys[layer])

    def rotate(
        self, layer: int, queries: Float[Tensor, "heads D"], source: int, targets: Int[Tensor, " n"]
    ) -> Float[Tensor, "heads n D"]:
        """Move post-RoPE queries from position `source` to each of `targets` (EchoKV, section 4.1, Eq. 2).

        In a layer without RoPE they are the same at every position.
        """
        exact = queries.to(accumulator(queries.dtype))
        content = self.angles(layer, torch.tensor([source])).back(exact)[:, None].expand(-1, len(targets), -1)
        return self.angles(layer, targets).turn(content).to(queries.dtype)


def prefill(
    model: Any,
    input_ids: Any,
    needs: Needs | None = None,
    stop_ids: Iterable[int] | None = None,
    min_new_tokens: int = 0,
    generation: Generation = BARE,
    tokenizer: Any = None,
) -> Prefill:
    """Run the prompt through the model once, with complete attention.

    model: a loaded transformers causal language model of one of `echokv.supported.KINDS`. Its attention kernel is
        used ("flash_attention_2", or else scaled_dot_product_attention) and its settings are left as they were.
    input_ids: token ids [L] or [1, L], or what a tokenizer returned; one prompt.
    needs: what to record; `press.needs`, or the union of several.
    stop_ids: token ids that end an answer; none by default.
    generation: how an answer's logits are changed; `Generation.of(model.generation_config)` is what `generate` does,
        by default they are taken as they are.
    tokenizer: for presses that feed the model texts of their own; no other needs it.

    Raises UsageError for an empty prompt, more than one prompt, a prompt longer than the model's positions,
    a model that is not supported, or activations that overflow.
    """
    config = model.config.to_dict()
    refuse_unsupported(config)
    given = prompts(input_ids)
    if len(given) != 1:
        raise UsageError(f"{len(given)} prompts given: a prefill takes one")
    ids = given[0][None]
    length = ids.shape[1]
    limit = model.config.max_position_embeddings
    if not 0 < length <= limit:
        raise UsageError(f"the prompt has {length} tokens; the model takes 1 to {limit}: truncate it")
    ids = ids.to(model.device)
    capture = Capture(needs or Needs(), model, len(Shape.of(config).places))
    with quick(model, length):
        logits = forward(model, ids, torch.arange(length, device=ids.device)[None], capture)
    if not logits.isfinite().all():
        raise UsageError("the logits are not finite: the model's activations overflow; use bfloat16 or float32")
    return Prefill(
        model=model,
        keys=capture.keys,
        values=capture.values,
        queries=capture.queries,
        sums=capture.sums if capture.needs.column_sums else None,
        logits=logits[0],
        ids=ids[0].to(logits.device),
        length=length,
        scaling=capture.scaling,
        stop_ids=frozenset(stop_ids or ()),
        min_new_tokens=min_new_tokens,
        generation=generation,
        sums_seconds=max(0.0, capture.sums_seconds),  # of a difference: noise may outweigh it
        moments=capture.moments,
        moments_seconds=capture.moments_seconds,
        texts={text: tokenizer.encode(text, add_special_tokens=False) for text in capture.needs.texts if tokenizer},
        places=tuple(capture.places),
        rings=capture.rings,
    )
