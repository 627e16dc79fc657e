"""Expected Attention: what the queries to come will pay, if they are like those of the prompt."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from echokv.prefilling import Needs, Prefill
from echokv.press import Press
from echokv.scores import accumulator


@dataclass(frozen=True, kw_only=True)
class ExpectedAttention(Press):
    """Keep the tokens with the largest expected share of the output (Devoto et al., arXiv 2510.00636, section 3).

    The queries before RoPE are taken for normally distributed. Their mean and covariance over the prompt, turned by
    the mean rotation to the next `future` positions, give the expectation of the exponentiated logit of each key in
    closed form. Its share among all keys behind the sinks, averaged over the query heads of a KV head, plus
    `epsilon`, times the norm of the value is the score. The first `n_sink` tokens stay and count in nothing.
    """

    n_sink: int = 4
    future: int = 512
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least("n_sink", 0)
        self.at_least("future", 1)

    @property
    def needs(self) -> Needs:
        return Needs(moments=frozenset({self.n_sink}))

    @property
    def least_budget(self) -> int:
        return self.n_sink + 1

    def score(self, prefill: Prefill, budget: int | None = None) -> list[Float[Tensor, "heads L"]]:
        ahead = torch.arange(prefill.length, prefill.length + self.future)
        found = []
        for layer, (mean, covariance) in enumerate(prefill.query_moments(self.n_sink)):
            keys, values = (part[layer][:, self.n_sink :] for part in (prefill.keys, prefill.values))
            turn = prefill.angles(layer, ahead).mean_turn(keys.shape[-1])
            shares = self.expected(mean @ turn.T, turn @ covariance @ turn.T, keys, prefill.scaling)
            shares = self.by_head(shares, prefill) / (len(shares) // len(keys) if self.granularity == "kv_head" else 1)
            norms = self.by_kv_head(values.to(shares.dtype).norm(dim=-1), prefill)
            found.append(F.pad((shares + self.epsilon) * norms, (self.n_sink, 0), value=torch.inf))
        return found

    @staticmethod
    def expected(
        mean: Float[Tensor, "H D"], covariance: Float[Tensor, "H D D"], keys: Float[Tensor, "G n D"], scaling: float
    ) -> Float[Tensor, "H n"]:
        """Each key's share of the expected exponentiated logits of a normally distributed query."""
        exact = keys.to(accumulator(keys.dtype)) * scaling
        exact = exact.repeat_interleave(len(mean) // len(keys), dim=0)
        logits = (exact @ mean[..., None]).squeeze(-1) + ((exact @ covariance) * exact).sum(dim=-1) / 2
        return logits.softmax(dim=-1)
