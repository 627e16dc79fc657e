"""ChunkKV: whole chunks of neighbouring tokens stay or go."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from echokv.prefilling import Needs, Prefill
from echokv.press import Press
from echokv.scores import protect


@dataclass(frozen=True, kw_only=True)
class ChunkKV(Press):
    """Rank chunks of `chunk` tokens by the attention of the last queries (Liu et al., arXiv 2502.00299, section 3).

    A chunk's score is the mean over its tokens of what the last `window` queries of all heads pay them, so that the
    heads of a layer keep the same tokens. Chunks are taken whole in the order of their scores; of the last one that
    fits in part, the first tokens, so that exactly the budget is stored. The window stays, and lies in no chunk.
    """

    window: int = 32
    chunk: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("window", "chunk"):
            self.at_least(field, 1)

    @property
    def needs(self) -> Needs:
        return Needs(window=self.window)

    @property
    def least_budget(self) -> int:
        return self.window + 1

    def score(self, prefill: Prefill, budget: int | None = None) -> list[Float[Tensor, "heads L"]]:
        """The negative place of every token in the order in which tokens are taken: no two are equal."""
        scores = []
        for mass in self.window_score(prefill, self.window, kernel=1, pooling="none"):
            free = mass.sum(dim=0)[: prefill.length - self.window]
            places = self._order(free).sort().indices.to(free.dtype)
            scores.append(self.by_kv_head(protect(-places[None], self.window).expand(prefill.groups, -1), prefill))
        return scores

    def _order(self, free: Float[Tensor, " n"]) -> Tensor:
        """Positions as they are taken: chunk by chunk, within a chunk from the first token on."""
        chunks = torch.arange(len(free), device=free.device) // self.chunk
        sizes = chunks.bincount()
        means = torch.zeros(len(sizes), dtype=free.dtype, device=free.device).index_add_(0, chunks, free) / sizes
        return means[chunks].sort(descending=True, stable=True).indices
