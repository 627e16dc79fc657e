"""DapQ: tokens of no meaning, at the positions where the answer will be, ask for what it will need."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from echokv.errors import UsageError
from echokv.prefilling import Prefill
from echokv.press import Press
from echokv.probe import probe
from echokv.scores import Pooling, attention_mass, pool, protect


@dataclass(frozen=True, kw_only=True)
class DapQ(Press):
    """Attention of a probe behind the prompt (Tian et al., arXiv 2603.11564), after the description: no code is public.

    A probe of n_first + n_last tokens runs behind the prompt, at the positions that follow it. What its queries pay to
    the prompt's tokens, summed, is their score. The probe leaves nothing in the cache. What the description leaves
    open is a field:

    content: the prompt's own first `n_first` and last `n_last` tokens ("ends"), its last token again and again
        ("last"), or tokens drawn at random with `seed` ("random").
    denominator: each probe token's softmax is taken over all that it sees, the probe before it included ("visible"),
        or over the prompt alone ("prompt").
    weights: all probe tokens count the same ("sum"), or the last alone does ("last").
    pooling, kernel: of the scores, as SnapKV's.
    window: last prompt tokens that stay whatever they receive.
    header: last prompt tokens that the probe stands before instead of behind, such as the template's opening of the
        answer; they stay as well.
    overflow: a probe beyond the model's positions is refused ("refuse") or shortened at its end ("shrink").
    """

    n_first: int = 4
    n_last: int = 28
    content: Literal["ends", "last", "random"] = "ends"
    seed: int = 0
    denominator: Literal["visible", "prompt"] = "visible"
    weights: Literal["sum", "last"] = "sum"
    pooling: Pooling = "none"
    kernel: int = 7
    window: int = 0
    header: int = 0
    overflow: Literal["refuse", "shrink"] = "refuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("n_first", "n_last", "window", "header"):
            self.at_least(field, 0)
        self.odd("kernel")
        if self.n_first + self.n_last < 1:
            raise UsageError("DapQ's probe is empty: n_first or n_last must be at least 1")

    @property
    def protected(self) -> int:
        """Last prompt tokens that stay."""
        return max(self.window, self.header)

    @property
    def least_budget(self) -> int:
        return self.protected + 1

    def probe_ids(self, prefill: Prefill) -> list[int]:
        """Token ids of the probe."""
        ids: list[int] = prefill.ids.tolist()
        size = self.n_first + self.n_last
        if self.content == "last":
            found = ids[-1:] * size
        elif self.content == "random":
            generator = torch.Generator().manual_seed(self.seed)
            found = torch.randint(prefill.model.config.vocab_size, (size,), generator=generator).tolist()
        else:
            found = ids[: self.n_first] + ids[max(0, len(ids) - self.n_last) :]
        room: int = prefill.model.config.max_position_embeddings - (prefill.length - self.header)
        return found[:room] if self.overflow == "shrink" and room > 0 else found

    def score(self, prefill: Prefill, budget: int | None = None) -> list[Float[Tensor, "heads L"]]:
        scores: list[Float[Tensor, "heads L"]] = []
        seen = prefill.length - self.header

        def look(layer: int, queries: Float[Tensor, "H n D"], keys: Float[Tensor, "G n D"]) -> None:
            mass = self.mass(queries, prefill.keys[layer][:, :seen], keys, prefill.scaling)
            free = self.by_head(mass, prefill)[:, : prefill.length - self.protected]
            scores.append(protect(pool(free, self.kernel, self.pooling), self.protected))

        probe(prefill, self.probe_ids(prefill), look, seen)
        return scores

    def mass(
        self,
        queries: Float[Tensor, "H n D"],
        keys: Float[Tensor, "G L D"],
        own: Float[Tensor, "G n D"],
        scaling: float,
    ) -> Float[Tensor, "H L"]:
        """What the probe's queries pay to the prompt's keys; `own` are the probe's."""
        length, n = keys.shape[1], queries.shape[1]
        if self.weights == "last":
            queries = queries[:, n - 1 :]
        if self.denominator == "prompt":
            return attention_mass(queries, keys, scaling, precision=self.precision)
        visible = torch.arange(length + n - queries.shape[1] + 1, length + n + 1, device=keys.device)
        every = torch.cat([keys, own], dim=1)
        return attention_mass(queries, every, scaling, visible, self.precision)[:, :length]
