"""KeyDiff: keys that are unlike the others stay."""

from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from echokv.masses import joined, spans
from echokv.prefilling import Prefill
from echokv.press import Press
from echokv.scores import accumulator


@dataclass(frozen=True, kw_only=True)
class KeyDiff(Press):
    """Keep the keys that point away from their head's mean direction (Park et al., arXiv 2504.15364, section 3.2).

    A key's score is its negative cosine with the mean of the head's normalised keys, after RoPE. The choice is made
    at once over the whole prompt; the published method evicts block by block while it reads.
    """

    def score(self, prefill: Prefill, budget: int | None = None) -> list[Float[Tensor, "heads L"]]:
        return self.by_layer((self._some(prefill, some) for some in spans(prefill)), prefill)

    def _some(self, prefill: Prefill, some: range) -> Float[Tensor, "layers*heads L"]:
        keys = joined([prefill.keys[layer] for layer in some])
        # Cosines lie close together: in half precision many would be equal.
        directions = F.normalize(keys.to(accumulator(keys.dtype)), dim=-1)
        anchor = F.normalize(directions.mean(dim=1, keepdim=True), dim=-1)
        return self.by_kv_head(-(directions * anchor).sum(dim=-1), prefill)
