"""The attention that queries of all layers pay to a prompt, of as many layers at once as pays."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from echokv.devices import runs, sent
from echokv.prefilling import Prefill
from echokv.scores import Precision, accumulator, attention_mass, products, room


def masses(
    prefill: Prefill,
    queries: Sequence[Float[Tensor, "H n D"]],
    visible: Int[Tensor, " n"] | None = None,
    precision: Precision = "float32",
) -> list[Float[Tensor, "layers*H L"]]:
    """`attention_mass` over the prompt by queries given per layer; each tensor is of some neighbouring layers.

    visible: on the CPU.
    """
    found = []
    for some in spans(prefill, queries[0].shape[1]):
        own, keys = (joined([part[layer] for layer in some]) for part in (queries, prefill.keys))
        seen = None if visible is None else sent(visible, keys.device)
        found.append(attention_mass(own, keys, prefill.scaling, seen, precision))
    return found


def window_masses(prefill: Prefill, window: int, precision: Precision) -> list[Float[Tensor, "layers*H L"]]:
    """`masses` of the last `window` prompt queries, each of which sees the keys up to its own position.

    Policies that work side by side share it: it is only read.
    """
    visible = torch.arange(prefill.length - window + 1, prefill.length + 1)

    def make() -> list[Float[Tensor, "layers*H L"]]:
        queries = [prefill.last_queries(layer, window) for layer in range(prefill.layers)]
        return masses(prefill, queries, visible, precision)

    return prefill.share(("window", window, precision), make)


def window_attention(prefill: Prefill, some: range, window: int) -> Float[Tensor, "layers H window n"]:
    """What each of the last `window` queries pays to each of the n tokens before them: probabilities, causal.

    some: layers of `spans`.
    """
    keys = joined([prefill.keys[layer] for layer in some])
    queries = joined([prefill.last_queries(layer, window) for layer in some])
    by_group = queries.reshape(len(keys), -1, queries.shape[-1])
    logits = products(by_group, keys, prefill.scaling, accumulator(keys.dtype))
    logits = logits.view(len(some), prefill.heads, window, prefill.length)
    before = prefill.length - window
    ahead = torch.ones(window, window, dtype=torch.bool, device=keys.device).triu(1)
    logits[..., before:].masked_fill_(ahead, -torch.inf)
    # In place, and without gaps: of matrices as large as these, there are never more than two at a time.
    return torch.softmax(logits, dim=-1, out=logits)[..., :before].contiguous()


def joined(parts: Sequence[Float[Tensor, "heads ..."]]) -> Float[Tensor, "layers*heads ..."]:
    """The heads of all layers given, one layer after the other."""
    return torch.cat(list(parts)) if len(parts) > 1 else parts[0]


def spans(prefill: Prefill, queries: int = 0) -> Iterator[range]:
    """Layers that are worked on together: scored by so many queries a head, or else token by token.

    On a GPU each launch costs, and as many layers are joined as there is room for. Elsewhere the copy of their keys
    would cost more than it saves.
    """
    keys = prefill.keys[0]
    largest = max(keys.numel(), prefill.heads * queries * prefill.length)
    return runs(prefill.keys, max(1, room(keys) // largest) if keys.is_cuda else 1)
