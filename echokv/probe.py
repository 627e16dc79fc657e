"""Tokens that are run against a prefill and leave nothing: what their queries would look at."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from echokv.attention import forward
from echokv.devices import sent
from echokv.errors import UsageError
from echokv.linear import quick
from echokv.prefilling import Prefill
from echokv.sliding import band, masked

# Given a layer, the probe's queries [H, n, D] and its own keys [G, n, D].
Look = Callable[[int, Float[Tensor, "H n D"], Float[Tensor, "G n D"]], None]


@dataclass
class _Probe:
    """Attention of n tokens that follow the first `seen` tokens of a prefill, and see each other causally."""

    prefill: Prefill
    seen: int
    start: int
    look: Look
    masks: dict[torch.device, Tensor] = field(default_factory=dict)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        self.look(layer, query[0], key[0])
        keys = torch.cat([self.prefill.keys[layer][None, :, : self.seen], key], dim=2)
        values = torch.cat([self.prefill.values[layer][None, :, : self.seen], value], dim=2)
        if query.device not in self.masks:
            n = query.shape[2]
            mask = torch.ones(n, self.seen + n, dtype=torch.bool, device=query.device)
            self.masks[query.device] = mask.tril(self.seen)
        return masked(query, keys, values, scaling, self.masks[query.device])

    def slide(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, window: int) -> Tensor:
        """Of the ring, the tokens before those that are not seen; `probe` has seen to it that none is missing."""
        keys, values = self.prefill.rings[layer].ordered(self.prefill.end)
        stored = max(0, keys.shape[1] - (self.prefill.length - self.seen))
        gap = self.start - self.seen  # positions between what is seen and the probe
        seen = band(query.shape[2], stored + gap, window, query.device)
        seen = torch.cat([seen[:, :stored], seen[:, stored + gap :]], dim=1)
        keys, values = (torch.cat([old[None, :, :stored], new], dim=2) for old, new in ((keys, key), (values, value)))
        return masked(query, keys, values, scaling, seen)


def probe(prefill: Prefill, ids: Sequence[int], look: Look, seen: int | None = None, start: int | None = None) -> None:
    """Run tokens behind a prefill's first `seen` tokens and show `look` their post-RoPE queries and keys by layer.

    ids: token ids. seen: the whole prompt by default. start: position of the first of them, `seen` by default.

    Raises UsageError for tokens beyond the model's positions, and where sliding layers have dropped what they would
    see.
    """
    seen = prefill.length if seen is None else seen
    start = seen if start is None else start
    limit = prefill.model.config.max_position_embeddings
    if start + len(ids) > limit:
        raise UsageError(
            f"a probe of {len(ids)} tokens behind {start} exceeds the model's {limit} positions: shorten the prompt"
        )
    if seen < prefill.length and any(ring.window < prefill.end for ring in prefill.rings):
        raise UsageError(
            f"a probe is to stand amid the prompt, behind {seen} of {prefill.length} tokens, of which the model's "
            "sliding layers have dropped the keys: let it see the whole prompt (DapQ: header=0)"
        )
    device = prefill.model.device
    positions = torch.arange(start, start + len(ids), device=device)
    given, observer = sent([list(ids)], device), _Probe(prefill, seen, start, look)
    with quick(prefill.model, len(ids)):
        forward(prefill.model, given, positions[None], observer)
