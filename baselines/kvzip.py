"""KVzip: what the model looks at while it repeats its context is what the context is made of."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from echokv.errors import UsageError
from echokv.prefilling import Needs, Prefill
from echokv.probe import probe
from echokv.scores import LOGITS, accumulator, products

from .across import Across


@dataclass(frozen=True, kw_only=True)
class KVzip(Across):
    """Attention while the context is repeated, chunk by chunk (Kim et al., NeurIPS 2025, section 3).

    For each chunk the model gets behind its full cache an instruction, `suffix` and the chunk itself; none of that is
    kept. A token's score is the most that any of these queries pays to it, over the query heads of a KV head too, in a
    softmax over the first `n_sink` tokens, the chunk and what was fed so far. Every head keeps the first `n_sink`.

    chunk: tokens repeated at a time. overflow: where the positions do not suffice for that, "refuse", or "shrink" it.
    prefix: so many first tokens, such as a template's, are no context: they stay, and are not repeated.
    lead: last tokens of the chunk before, which stand behind the instruction from the second chunk on.
    first, later: the instructions. suffix: what a template puts between them and the answer.
    """

    n_sink: int = 4
    chunk: int = 2048
    overflow: Literal["refuse", "shrink"] = "shrink"
    prefix: int = 0
    lead: int = 8
    first: str = "\n\nRepeat the previous context exactly."
    later: str = "\n\nRepeat the part of the previous context exactly, starting with"
    suffix: str = "\n"
    across: Literal["layer", "model"] = "model"

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, least in {"n_sink": 0, "chunk": 1, "prefix": 0, "lead": 0}.items():
            self.at_least(field, least)

    @property
    def needs(self) -> Needs:
        return Needs(texts=frozenset({self.first, self.later, self.suffix}))

    @property
    def protected(self) -> int:
        """First tokens that stay."""
        return max(self.n_sink, self.prefix)

    @property
    def least_budget(self) -> int:
        return self.protected + 1

    def replays(self, prefill: Prefill) -> list[tuple[int, int, list[int]]]:
        """Where each chunk begins and ends, and the token ids that are fed for it. Raises UsageError as `probe`."""
        ids = prefill.ids.tolist()
        first, later, suffix = (prefill.spelled(text) for text in (self.first, self.later, self.suffix))
        fixed = max(len(first), len(later) + self.lead) + len(suffix)
        room: int = prefill.model.config.max_position_embeddings - prefill.end - fixed
        if room < (self.chunk if self.overflow == "refuse" else 1):
            raise UsageError(
                f"KVzip repeats {self.chunk} tokens behind the prompt's {prefill.end}, and the model has positions for "
                f"{max(0, room)}: shorten the prompt, or let it repeat fewer at a time (chunk, overflow)"
            )
        size = min(self.chunk, room)
        found = []
        for begin in range(self.prefix, len(ids), size):
            asked = first if begin == self.prefix else [*later, *ids[max(0, begin - self.lead) : begin]]
            found.append((begin, min(begin + size, len(ids)), [*asked, *suffix, *ids[begin : begin + size]]))
        return found

    def score(self, prefill: Prefill, budget: int | None = None) -> list[Float[Tensor, "heads L"]]:
        heads = self.heads_of(prefill)
        scores = [keys.new_zeros(heads, prefill.length, dtype=accumulator(keys.dtype)) for keys in prefill.keys]
        for begin, end, ids in self.replays(prefill):
            sinks = min(self.n_sink, begin)

            def look(
                layer: int, queries: Float[Tensor, "H n D"], keys: Float[Tensor, "G n D"],
                begin: int = begin, end: int = end, sinks: int = sinks,
            ) -> None:  # fmt: skip
                own = prefill.keys[layer]
                before = torch.cat([own[:, :sinks], own[:, begin:end]], dim=1)
                most = self.most(queries, before, keys, prefill.scaling)
                scores[layer][:, begin:end] = most.view(heads, -1, most.shape[1]).amax(dim=1)[:, sinks:]

            probe(prefill, ids, look)
        for layer in scores:
            layer[:, : self.protected] = torch.inf
        return scores

    def most(
        self,
        queries: Float[Tensor, "H n D"],
        keys: Float[Tensor, "G m D"],
        own: Float[Tensor, "G n D"],
        scaling: float,
    ) -> Float[Tensor, "H m"]:
        """The most that each head's queries pay to each key; of `own` each query sees those up to itself."""
        (heads, n, _), (groups, m, _), dtype = queries.shape, keys.shape, accumulator(queries.dtype)
        every = torch.cat([keys, own], dim=1).repeat_interleave(heads // groups, dim=0)
        columns = torch.arange(m + n, device=keys.device)
        found = keys.new_zeros(heads, m, dtype=dtype)
        step = max(1, LOGITS // (heads * (m + n)))
        for start in range(0, n, step):
            logits = products(queries[:, start : start + step], every, scaling, dtype)
            last = m + torch.arange(start, min(start + step, n), device=keys.device)
            paid = logits.masked_fill_(columns > last[:, None], -torch.inf).softmax(dim=-1)
            found = torch.maximum(found, paid[:, :, :m].amax(dim=1))
        return found
