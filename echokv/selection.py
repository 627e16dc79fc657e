"""Which prompt tokens stay: the top-k rule and its result."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from echokv.devices import runs, sent
from echokv.errors import UsageError
from echokv.prefilling import Prefill
from echokv.scores import room

Keep = Sequence[Sequence[int]]  # tokens that each head of each layer keeps


@dataclass(frozen=True, eq=False)
class Selection:
    """The prompt tokens kept, per layer and head.

    indices: per layer int64 [heads, longest], 0-based prompt positions, ascending and unique; behind those of a head
        that keeps fewer than the layer's longest stands -1. `heads` is the model's KV heads, or its query heads under
        granularity="query_head".
    kept: per layer and head, how many these are.
    length: the prompt's length L.
    ties: number of (layer, head) pairs in which a token of equal score was left out at the cut.
    """

    indices: list[Int[Tensor, "heads longest"]]
    kept: list[list[int]]
    length: int
    ties: int = 0

    @classmethod
    def of(cls, indices: list[Int[Tensor, "heads kept"]], length: int) -> "Selection":
        """The selection of these positions; the heads of a layer keep equally many."""
        return cls(indices, [[index.shape[1]] * index.shape[0] for index in indices], length)

    @classmethod
    def everything(cls, layers: int, heads: int, length: int) -> "Selection":
        """The selection that evicts nothing."""
        return cls.of([torch.arange(length).expand(heads, length)] * layers, length)

    @property
    def heads(self) -> int:
        """How many heads of a layer keep tokens of their own."""
        return len(self.kept[0])

    @property
    def entries(self) -> int:
        """Stored (key, value) pairs of the prompt, summed over layers and heads; see `Prefill.beside` for others."""
        return sum(map(sum, self.kept))

    def bytes(self, prefill: Prefill) -> int:
        """Bytes of the keys and values stored for this selection of a prefill, those of sliding layers included."""
        return (self.entries + prefill.beside()) * prefill.entry_bytes

    def held(self, layer: int) -> Bool[Tensor, "heads L"]:
        """Which tokens each head of a layer keeps."""
        return _marks(self.indices[layer], self.length)

    def every_held(self) -> list[Bool[Tensor, "heads L"]]:
        """`held` of every layer."""
        return [held for index in stacks(self.indices) for held in _marks(index, self.length)]

    def positions(self) -> list[list[Int[Tensor, " kept"]]]:
        """Per layer and head, the positions kept."""
        return [
            [head[:n] for head, n in zip(index, kept, strict=True)]
            for index, kept in zip(self.indices, self.kept, strict=True)
        ]


def cut(scores: Sequence[Float[Tensor, "heads L"]], keeps: Sequence[Keep]) -> list[Selection]:
    """For each of `keeps`, the tokens of the largest scores; among equal scores of a head the lower index wins.

    scores: one tensor a layer. keeps: one a selection.

    `torch.topk` leaves the order of equal scores to the device. Here only its k-th value is used: everything above it
    stays, and places left over go to the lowest indices that equal it. Nothing waits for the device but the end.

    Raises UsageError if a score is NaN.
    """
    indices: list[list[Tensor]] = [[] for _ in keeps]
    counted = []
    first = 0
    for stacked in stacks(scores):
        parts = [keep[first : first + len(stacked)] for keep in keeps]
        first += len(stacked)
        most = max(max(map(max, part)) for part in parts)
        best = stacked.topk(max(1, most), dim=-1).values
        counted.append([best[..., 0].isnan().sum()])  # to topk, NaN is the largest
        for place, part in enumerate(parts):
            found, ties = _cut(stacked, best, part)
            indices[place] += [index[:, : max(kept)] for index, kept in zip(found, part, strict=True)]
            counted[-1].append(ties.sum())
    device = counted[0][0].device
    broken, *left_out = torch.stack([torch.stack(some).to(device) for some in counted]).sum(dim=0).tolist()
    if broken:
        raise UsageError("scores contain NaN: the model's activations overflow; use bfloat16 or float32")
    length = scores[0].shape[1]
    return [
        Selection(found, [list(heads) for heads in keep], length, n)
        for found, keep, n in zip(indices, keeps, left_out, strict=True)
    ]


def top_k(scores: Float[Tensor, "heads L"], k: int) -> tuple[Int[Tensor, "heads k"], int]:
    """The k best of every head, ascending, and the number of heads in which an equal score had to be left out."""
    (made,) = cut([scores], [[[k] * len(scores)]])
    return made.indices[0], made.ties


def stacks(scores: Sequence[Shaped[Tensor, "heads n"]]) -> Iterator[Shaped[Tensor, "layers heads n"]]:
    """Neighbouring layers that lie on one device, as many at a time as a matrix of logits has room for."""
    for some in runs(scores, max(1, room(scores[0]) // max(1, scores[0].numel()))):
        yield torch.stack([scores[layer] for layer in some])


def _marks(indices: Int[Tensor, "*some longest"], length: int) -> Bool[Tensor, "*some L"]:
    """Which of so many tokens are among the positions."""
    marks = torch.zeros(*indices.shape[:-1], length + 1, dtype=torch.bool, device=indices.device)
    return marks.scatter_(-1, indices % (length + 1), True)[..., :length]  # -1 is the column cut off


def _cut(
    scores: Float[Tensor, "layers heads L"], best: Float[Tensor, "layers heads k"], keep: Keep
) -> tuple[Int[Tensor, "layers heads longest"], Int[Tensor, "layers heads"]]:
    """Positions of the `keep` best of each head, -1 behind them, and where an equal score had to be left out.

    best: the largest scores of each head, descending.
    """
    length, longest = scores.shape[-1], max(map(max, keep))
    sizes = _sizes(keep, scores)
    least = best.gather(-1, (sizes - 1).clamp(min=0))
    above, equal = scores > least, scores == least
    places = sizes - above.sum(dim=-1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(dim=-1, dtype=torch.int32) <= places))
    # Each chosen token goes to its rank among the chosen, every other to a column that is cut off.
    ranks = torch.where(chosen, chosen.cumsum(dim=-1, dtype=torch.int32) - 1, longest).long()
    found = torch.full((*scores.shape[:2], longest + 1), -1, device=scores.device)
    found.scatter_(-1, ranks, torch.arange(length, device=scores.device).expand(scores.shape))
    ties = (equal.sum(dim=-1, keepdim=True) > places) & (sizes > 0)
    return found[..., :longest], ties


def _sizes(keep: Keep, like: Tensor) -> Int[Tensor, "layers heads 1"]:
    """How many each head keeps; only where they differ is a list sent to the device."""
    shape = (len(keep), len(keep[0]), 1)
    first = keep[0][0]
    if all(size == first for heads in keep for size in heads):
        return torch.full(shape, first, device=like.device)
    return sent(keep, like.device).view(shape)
