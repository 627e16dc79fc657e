"""LagKV: a stretch of tokens is judged by the stretch that follows it."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from echokv.masses import joined, spans
from echokv.prefilling import Prefill
from echokv.press import Press
from echokv.scores import accumulator


@dataclass(frozen=True, kw_only=True)
class LagKV(Press):
    """Keep, of each stretch of `lag` tokens, those that the next one predicts worst (Liang et al., arXiv 2504.04704).

    Keys and values are scaled per channel by the range of the following stretch; a token's score is the standard
    deviation over its channels, as a softmax within the stretch, averaged over keys and values (section 3). Ranks
    within a stretch compete for the budget, so that every stretch keeps the same share. The first `n_sink` tokens
    stay, and the last stretch with what is left behind it, which nothing follows. A channel that is constant in the
    following stretch counts as 0.
    """

    n_sink: int = 4
    lag: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least("n_sink", 0)
        self.at_least("lag", 2)

    @property
    def least_budget(self) -> int:
        return self.n_sink + 2 * self.lag  # the sinks, and the longest end that nothing follows

    def score(self, prefill: Prefill, budget: int | None = None) -> list[Float[Tensor, "heads L"]]:
        return self.by_layer((self._some(prefill, some) for some in spans(prefill)), prefill)

    def _some(self, prefill: Prefill, some: range) -> Float[Tensor, "layers*heads L"]:
        dtype = accumulator(prefill.keys[0].dtype)
        stretches = (prefill.length - self.n_sink) // self.lag
        end = self.n_sink + (stretches - 1) * self.lag
        keys, values = (
            self._surprise(joined([part[layer] for layer in some]).to(dtype), stretches)
            for part in (prefill.keys, prefill.values)
        )
        both = keys + values
        scores = both.new_full((len(both), prefill.length), torch.inf)
        # The rank of each token in its stretch: sorting the order of a sort.
        ranks = both.sort(dim=-1, stable=True).indices.sort(dim=-1).indices
        scores[:, self.n_sink : end] = ranks.flatten(1).to(dtype)
        return self.by_kv_head(scores, prefill)

    def _surprise(self, part: Float[Tensor, "heads L D"], stretches: int) -> Float[Tensor, "heads stretches-1 lag"]:
        heads, _, dim = part.shape
        cut = part[:, self.n_sink : self.n_sink + stretches * self.lag].reshape(heads, stretches, self.lag, dim)
        low, high = (cut[:, 1:].amin(dim=2, keepdim=True), cut[:, 1:].amax(dim=2, keepdim=True))
        scaled = (cut[:, :-1] - low).div_(high - low).masked_fill_(high == low, 0.0)
        # torch's own standard deviation takes ten times as long on a CPU.
        squares = scaled.sub_(scaled.mean(dim=-1, keepdim=True)).square_().sum(dim=-1)
        return (squares / (dim - 1)).sqrt().softmax(dim=-1)
