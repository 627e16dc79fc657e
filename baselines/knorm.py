"""Knorm: short keys stay."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from echokv.masses import joined, spans
from echokv.prefilling import Prefill
from echokv.press import Press
from echokv.scores import accumulator


@dataclass(frozen=True, kw_only=True)
class Knorm(Press):
    """Keep the tokens whose keys have the smallest L2 norm (Devoto et al., EMNLP 2024, section 3)."""

    def score(self, prefill: Prefill, budget: int | None = None) -> list[Float[Tensor, "heads L"]]:
        parts = (joined([prefill.keys[layer] for layer in some]) for some in spans(prefill))
        norms = (keys.to(accumulator(keys.dtype)).norm(dim=-1) for keys in parts)
        return self.by_layer((self.by_kv_head(-norm, prefill) for norm in norms), prefill)
