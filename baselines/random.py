"""Random: the floor of every table."""

from dataclasses import dataclass
from hashlib import sha256

import torch
from jaxtyping import Float
from torch import Tensor

from echokv.prefilling import Prefill
from echokv.press import Press


@dataclass(frozen=True, kw_only=True)
class Random(Press):
    """Keep tokens drawn at random for every layer and KV head, without any look at the prompt.

    seed: of the draw, which also depends on the prompt's length and on the layer, not on its text.
    """

    seed: int = 0

    def score(self, prefill: Prefill, budget: int | None = None) -> list[Float[Tensor, "heads L"]]:
        # A digest, for torch's generator takes 32 bits of a seed: neighbouring numbers would give related draws.
        seed = int.from_bytes(sha256(f"{self.seed} {prefill.length}".encode()).digest()[:4])
        generator = torch.Generator().manual_seed(seed)
        shape = (prefill.groups, prefill.length)
        drawn = [torch.rand(shape, generator=generator, dtype=torch.float64) for _ in prefill.keys]
        return [self.by_kv_head(one.to(keys.device), prefill) for one, keys in zip(drawn, prefill.keys, strict=True)]
