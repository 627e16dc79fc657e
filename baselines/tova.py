"""TOVA: the last query decides."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from echokv.prefilling import Needs, Prefill
from echokv.press import Press
from echokv.scores import attention_mass, protect


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
        last = int(self.protect_last)
        scores = []
        for layer, keys in enumerate(prefill.keys):
            queries = prefill.last_queries(layer, 1)
            mass = attention_mass(queries, keys, prefill.scaling, precision=self.precision)
            free = mass.mean(dim=0, keepdim=True)[:, : prefill.length - last]
            scores.append(self.by_kv_head(protect(free, last).expand(prefill.groups, -1), prefill))
        return scores
