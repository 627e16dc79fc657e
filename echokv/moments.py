"""Mean and covariance of a prompt's queries before RoPE."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from echokv.rotary import Angles
from echokv.scores import accumulator

ROWS = 1 << 22  # numbers of one head's queries at a time


class Moments(NamedTuple):
    """Of n queries: their mean, and their covariance with divisor n."""

    mean: Float[Tensor, "H D"]
    covariance: Float[Tensor, "H D D"]


def moments(turned: Angles, queries: Float[Tensor, "H L D"], skip: int) -> Moments:
    """Moments of the queries at positions `skip` to L - 1 of one layer, given post-RoPE (Devoto et al.,
    arXiv 2510.00636, section 3). turned: the angles of those positions. Without any such position they are 0."""
    heads, length, dim = queries.shape
    dtype = accumulator(queries.dtype)
    mean = queries.new_zeros(heads, dim, dtype=dtype)
    covariance = queries.new_zeros(heads, dim, dim, dtype=dtype)
    at_once = max(1, ROWS // (max(1, length) * dim))
    for first in range(0, heads if length > skip else 0, at_once):
        some = slice(first, first + at_once)
        content = turned.undo(queries[some, skip:].to(dtype))
        mean[some] = content.mean(dim=1)
        content -= mean[some, None]
        covariance[some] = content.mT @ content / content.shape[1]
    return Moments(mean, covariance)
