"""ChunkKV: whole chunks of neighbouring tokens stay or go."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from echokv.masses import window_masses
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
        before, heads = prefill.length - self.window, self.heads_of(prefill)
        scores: list[Tensor] = []
        for mass in window_masses(prefill, self.window, self.precision):
            free = self.by_head(mass[:, :before], prefill).view(-1, heads, before).sum(dim=1)
            places = self._order(free).sort(dim=-1).indices.to(free.dtype)
            scores += protect(-places, self.window)[:, None].expand(-1, heads, -1)
        return scores

    def _order(self, free: Float[Tensor, "layers n"]) -> Int[Tensor, "layers n"]:
        """Positions as they are taken: chunk by chunk, within a chunk from the first token on."""
        layers, n = free.shape
        chunks = torch.arange(n, device=free.device) // self.chunk
        means = free.new_zeros(layers, -(-n // self.chunk)).index_add_(1, chunks, free)
        means[:, : n // self.chunk] /= self.chunk
        means[:, n // self.chunk :] /= n % self.chunk or 1  # the last, where it is shorter
        return means[:, chunks].sort(dim=-1, descending=True, stable=True).indices
