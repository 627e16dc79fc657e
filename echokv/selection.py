"""Which prompt tokens stay: the top-k rule and its result."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from echokv.errors import UsageError
from echokv.prefill import Prefill


def top_k(scores: Float[Tensor, "heads L"], k: int) -> tuple[Int[Tensor, "heads k"], int]:
    """Indices of the k largest scores of each head, ascending; among equal scores the lower index wins.

    `torch.topk` leaves the order of equal scores to the device. Here only its k-th value is used: everything
    above it stays, and places left over go to the lowest indices that equal it.

    Returns the indices (int64) and the number of heads in which an equal score had to be left out.
    Raises UsageError if a score is NaN.
    """
    if torch.isnan(scores).any():
        raise UsageError("scores contain NaN: the model's activations overflow; use bfloat16 or float32")
    cut = scores.topk(k, dim=-1, sorted=False).values.amin(dim=-1, keepdim=True)
    above, equal = scores > cut, scores == cut
    places = k - above.sum(dim=-1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(dim=-1) <= places))
    ties = int((equal.sum(dim=-1, keepdim=True) > places).sum())
    return chosen.nonzero()[:, 1].view(scores.shape[0], k), ties


@dataclass(frozen=True, eq=False)
class Selection:
    """The prompt tokens kept, per layer and head.

    indices: per layer int64 [heads, kept], ascending and unique, 0-based prompt positions. `heads` is the
        model's KV heads, or its query heads under granularity="query_head".
    length: the prompt's length L.
    ties: number of (layer, head) pairs in which a token of equal score was left out at the cut.
    """

    indices: list[Int[Tensor, "heads kept"]]
    length: int
    ties: int = 0

    @classmethod
    def everything(cls, layers: int, heads: int, length: int) -> "Selection":
        """The selection that evicts nothing."""
        return cls([torch.arange(length).expand(heads, length)] * layers, length)

    @property
    def entries(self) -> int:
        """Stored (key, value) pairs, summed over layers and heads."""
        return sum(index.numel() for index in self.indices)

    def bytes(self, prefill: Prefill) -> int:
        """Bytes of the keys and values stored for this selection of a prefill."""
        return self.entries * 2 * prefill.keys[0].shape[-1] * prefill.keys[0].element_size()
