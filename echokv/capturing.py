"""What a prefill records, and recording it."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from echokv.causal import causal_attention, normalized_attention
from echokv.columns import column_sums, in_one_pass, summed_attention
from echokv.devices import now
from echokv.moments import Moments, moments
from echokv.rotary import angles
from echokv.sliding import Ring


@dataclass(frozen=True)
class Needs:
    """What a press wants recorded besides keys, values and logits; `a | b` serves both.

    window: post-RoPE queries of that many last prompt tokens.
    column_sums: the attention each key receives from all prompt queries.
    moments: mean and covariance of the queries before RoPE; the numbers of first tokens that are left out.
    texts: token ids of texts, for which `prefill` needs the tokenizer.
    """

    window: int = 1
    column_sums: bool = False
    moments: frozenset[int] = frozenset()
    texts: frozenset[str] = frozenset()

    def __or__(self, other: "Needs") -> "Needs":
        sums = self.column_sums or other.column_sums
        texts = self.texts | other.texts
        return Needs(max(self.window, other.window), sums, self.moments | other.moments, texts)


class Layers(list[Tensor]):
    """Copies of tensors of one shape, one a layer.

    Of a CPU's they lie in one block: each by itself would lie between what a pass needs for a moment only, and leave
    holes there that nothing fits into, up to a fifth of the memory.
    """

    def __init__(self, count: int) -> None:
        """count: most layers that there may be; what is not used of a block takes no memory."""
        super().__init__()
        self._count = count
        self._block: Tensor | None = None

    def add(self, part: Tensor) -> Tensor:
        """Copy a layer's tensor, and return the copy."""
        if part.device.type != "cpu":
            self.append(part.clone(memory_format=torch.contiguous_format))
            return self[-1]
        if self._block is None:
            self._block = part.new_empty(self._count, *part.shape)
        self.append(self._block[len(self)].copy_(part))
        return self[-1]


class Capture:
    """Causal attention that keeps each layer's keys, values and whatever `needs` names, of sliding layers a window."""

    def __init__(self, needs: Needs, model: Any, layers: int) -> None:
        """layers: how many are not sliding."""
        self.needs = needs
        self.model = model
        self.places: list[int] = []
        self.rings: list[Ring] = []
        self.implementation: str = model.config._attn_implementation
        self.keys, self.values, self.queries, self.sums = (Layers(layers) for _ in range(4))
        self.moments: dict[int, list[Moments]] = {skip: [] for skip in needs.moments}
        self.scaling = 1.0
        self.sums_seconds = self.moments_seconds = 0.0
        self._alone: float | None = None  # seconds of a layer's attention without column sums

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        self.scaling = scaling
        self.places.append(len(self.places) + len(self.rings))
        key, value = self.keys.add(key[0])[None], self.values.add(value[0])[None]
        length = query.shape[2]
        self.queries.add(query[0, :, max(0, length - self.needs.window) :])
        if self.moments:
            begun = now(query.device)
            for skip, found in self.moments.items():
                turned = angles(self.model, self.places[layer], torch.arange(skip, max(skip, length)), query)
                found.append(moments(turned, query[0], skip))
            self.moments_seconds += now(query.device) - begun
        if not self.needs.column_sums:
            return causal_attention(query, key, value, scaling, self.implementation)
        return self._summed(query, key, value, scaling)

    def _summed(self, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """Attention with its column sums, and how much longer this takes than attention alone."""
        begun = now(query.device)
        if in_one_pass(query):
            if self._alone is None:  # measured in the first layer, for all
                causal_attention(query, key, value, scaling, self.implementation)
                self._alone = now(query.device) - begun
            out, sums = summed_attention(query, key, value, scaling)
            begun += self._alone
        else:
            out, normalizers = normalized_attention(query, key, value, scaling, self.implementation)
            begun = now(query.device)
            sums = column_sums(query[0], key[0], scaling, normalizers=normalizers)
        self.sums_seconds += now(query.device) - begun
        self.sums.add(sums)
        return out

    def slide(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, window: int) -> Tensor:
        self.rings.append(Ring.of(key[0], value[0], window, key.shape[2]))
        return causal_attention(query, key.contiguous(), value.contiguous(), scaling, self.implementation, window)
