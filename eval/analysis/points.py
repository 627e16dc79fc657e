"""The points that lie best among many numbers: k-means of one dimension, solved from a fine histogram."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from eval.console.errors import UserError

BINS = 1024


@dataclass(frozen=True, eq=False)
class Counts:
    """How many numbers lie in each bin from -1 to 1, and their sums: of each layer."""

    numbers: Float[Tensor, "layers bins"]
    sums: Float[Tensor, "layers bins"]

    @classmethod
    def none(cls, layers: int) -> Counts:
        return cls(*torch.zeros(2, layers, BINS, dtype=torch.float64))

    def add(self, layer: int, units: Float[Tensor, " n"]) -> None:
        place = ((units + 1) * (BINS / 2)).long().clamp(0, BINS - 1)
        self.numbers[layer] += torch.bincount(place, minlength=BINS).cpu()
        self.sums[layer] += torch.bincount(place, weights=units.double(), minlength=BINS).cpu()


def points(counted: Counts, k: int) -> Float[Tensor, "layers k"]:
    """Of each layer the k points of least squared distance. Raises UserError for layers of too few numbers."""
    return torch.stack([best_points(*layer, k) for layer in zip(counted.numbers, counted.sums, strict=True)])


def best_points(numbers: Float[Tensor, " bins"], sums: Float[Tensor, " bins"], k: int) -> Float[Tensor, " k"]:
    """The k points of least squared distance to numbers that lie at the mean of their bin, ascending; k-means, solved.

    Each point is the mean of neighbouring bins, so that the best cut of the first j bins into k parts is the best of
    the first i bins into k - 1, and one part more: all i are tried. A part's sum ** 2 / count is what it takes off the
    squared distances.

    Raises UserError where fewer than k bins have numbers.
    """
    some = numbers > 0
    if int(some.sum()) < k:
        raise UserError(f"a layer's numbers are too alike for {k} points: read more text, by analysis.sequences=")
    count, total = (torch.cat([part.new_zeros(1), part[some].cumsum(0)]) for part in (numbers, sums))
    n, s = count - count[:, None], total - total[:, None]
    gain = torch.where(n > 0, s.square() / n, -torch.inf)
    best, cuts = gain[0], []
    for _ in range(k - 1):
        best, cut = (best[:, None] + gain).max(dim=0)
        cuts.append(cut)
    edges = [len(count) - 1]
    for cut in reversed(cuts):
        edges.insert(0, int(cut[edges[0]]))
    at = torch.tensor([0, *edges])
    return total[at].diff() / count[at].diff()


def distances(counted: Counts, of_layers: Float[Tensor, "layers k"]) -> Float[Tensor, " layers"]:
    """The mean squared distance of each layer's numbers from the nearest point."""
    means = counted.sums / counted.numbers.clamp(min=1)
    nearest = (means[..., None] - of_layers[:, None].to(means)).square().amin(dim=-1)
    return (counted.numbers * nearest).sum(dim=1) / counted.numbers.sum(dim=1)
