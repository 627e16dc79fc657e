"""TOVA: the last query decides."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from echokv.masses import masses
from echokv.prefilling import Needs, Prefill
from echokv.press import Press
from echokv.scores import protect


@dataclass(frozen=True, kw_only=True)
class TOVA(Press):
    """Keep the tokens to which the last prompt query attends most (Oren et al., EMNLP 2024, section 3).

    The attention is averaged over all query heads of a layer, so that its heads keep the same tokens. The choice is
    made once, after the prefill; the published method repeats it at every decode step.

    protect_last: whether the last prompt token stays whatever it received; in the published code it may go.
    """

    protect_last: bool = False

    @property
    def needs(self) -> Needs:
        return Needs(window=1)

    def score(self, prefill: Prefill, budget: int | None = None) -> list[Float[Tensor, "heads L"]]:
        last, heads = int(self.protect_last), self.heads_of(prefill)
        queries = [prefill.last_queries(layer, 1) for layer in range(prefill.layers)]
        scores: list[Float[Tensor, "heads L"]] = []
        for mass in masses(prefill, queries, precision=self.precision):
            free = mass.view(-1, prefill.heads, prefill.length).mean(dim=1)[:, : prefill.length - last]
            scores.extend(protect(free, last)[:, None].expand(-1, heads, -1))
        return scores
