"""Layers that drop keys themselves: of a sliding window only the last tokens are stored, and nothing is left to evict.

A token sees itself and the `window` - 1 before it. The token of position p lies at place p % window of a ring, so that
each new one takes the place of the one that it no longer sees.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from echokv.buckets import longer
from echokv.scores import accumulator, products


class Ring(NamedTuple):
    """The last min(window, L) of the L tokens that one sliding layer has seen; never changed in place."""

    keys: Float[Tensor, "G size D"]
    values: Float[Tensor, "G size D"]
    window: int

    @classmethod
    def of(cls, keys: Float[Tensor, "G n D"], values: Float[Tensor, "G n D"], window: int, end: int) -> "Ring":
        """Of the n tokens before position `end`, in their order: all there were, or at least a window of them."""
        last = min(keys.shape[1], window)
        turn = end % window if last == window else 0
        # A roll copies: a view would keep the keys of the whole prompt alive.
        newest, beside = keys[:, keys.shape[1] - last :], values[:, values.shape[1] - last :]
        return cls(newest.roll(turn, dims=1), beside.roll(turn, dims=1), window)

    def ordered(self, end: int) -> tuple[Float[Tensor, "G size D"], Float[Tensor, "G size D"]]:
        """Keys and values in the order of their positions, the last of which is `end` - 1."""
        turn = -(end % self.window) if self.keys.shape[1] == self.window else 0
        return self.keys.roll(turn, dims=1), self.values.roll(turn, dims=1)

    def extended(self, keys: Tensor, values: Tensor, end: int) -> "Ring":
        """After the tokens from position `end` on."""
        pairs = zip(self.ordered(end), (keys, values), strict=True)
        joined = [torch.cat(pair, dim=1) for pair in pairs]
        return Ring.of(joined[0], joined[1], self.window, end + keys.shape[1])

    def attend(
        self,
        query: Float[Tensor, "1 H new D"],
        key: Float[Tensor, "1 G new D"],
        value: Float[Tensor, "1 G new D"],
        scaling: float,
        end: int,
    ) -> Float[Tensor, "1 new H D"]:
        """Attention of the tokens from position `end` on to what is stored, and to each other."""
        new, before = query.shape[2], self.keys.shape[1]
        keys, values = self.ordered(end)
        seen = band(new, before, self.window, query.device)
        return masked(
            query, torch.cat([keys[None], key], dim=2), torch.cat([values[None], value], dim=2), scaling, seen
        )


def band(new: int, before: int, window: int, device: torch.device) -> Bool[Tensor, "new before+new"]:
    """Which of the keys, `before` of them older, each new token sees."""
    own = torch.arange(before, before + new, device=device)[:, None]
    keys = torch.arange(before + new, device=device)
    return (keys <= own) & (keys > own - window)


def masked(query: Tensor, key: Tensor, value: Tensor, scaling: float, seen: Tensor) -> Float[Tensor, "1 new H D"]:
    """Attention to what a mask shows."""
    shared = query.shape[1] // key.shape[1]
    if query.is_cuda:  # where no kernel that takes a mask takes grouped queries without a matrix of all logits
        key, value, shared = key.repeat_interleave(shared, 1), value.repeat_interleave(shared, 1), 1
    out = F.scaled_dot_product_attention(query, key, value, attn_mask=seen, scale=scaling, enable_gqa=shared > 1)
    return out.transpose(1, 2)


class Rings:
    """The sliding layers of rows that decode together; everything stays in place while the rows are the same."""

    def __init__(self, rows: Sequence[Sequence[Ring]], ends: Sequence[int], room: int) -> None:
        """rows: the rings of each row, a layer each. ends: positions of their next tokens. room: tokens to come."""
        self.windows = [ring.window for ring in rows[0]]
        self.longest = max(ends) + room
        self.keys: list[Float[Tensor, "rows G size D"]] = []
        self.values: list[Float[Tensor, "rows G size D"]] = []
        for layer, window in enumerate(self.windows):
            size = min(window, self.longest)
            own = [row[layer] for row in rows]
            self.keys.append(torch.stack([longer(ring.keys, size - ring.keys.shape[1]) for ring in own]))
            self.values.append(torch.stack([longer(ring.values, size - ring.values.shape[1]) for ring in own]))

    def attend(
        self,
        layer: int,
        query: Float[Tensor, "rows H D"],
        key: Float[Tensor, "rows G D"],
        value: Float[Tensor, "rows G D"],
        scaling: float,
        positions: Int[Tensor, " rows"],
    ) -> Float[Tensor, "rows H D"]:
        """Store one new token per row in the place of its position, and attend to its window."""
        keys, values = self.keys[layer], self.values[layer]
        rows, groups, size, dim = keys.shape
        place = (positions % self.windows[layer])[:, None, None, None].expand(rows, groups, 1, dim)
        keys.scatter_(2, place, key[:, :, None])
        values.scatter_(2, place, value[:, :, None])
        # Behind a row's position nothing has been stored yet; once its ring is full nothing is hidden.
        hidden = torch.arange(size, device=keys.device) > positions[:, None]
        by_head = query.reshape(rows * groups, -1, dim)
        logits = products(by_head, keys.view(-1, size, dim), scaling, accumulator(keys.dtype))
        logits = logits.view(rows, groups, -1, size).masked_fill(hidden[:, None, None], -torch.inf)
        weights = torch.softmax(logits, dim=-1).to(values.dtype).view(rows * groups, -1, size)
        return torch.bmm(weights, values.view(-1, size, dim)).view(rows, -1, dim)

    def of(self, row: int, end: int) -> list[Ring]:
        """The rings of a row that has had `end` tokens."""
        return [
            Ring(keys[row, :, : min(window, end)].clone(), values[row, :, : min(window, end)].clone(), window)
            for keys, values, window in zip(self.keys, self.values, self.windows, strict=True)
        ]

    def grow(self, room: int) -> None:
        """Make room for so many more tokens, where a ring has not its full length yet."""
        self.longest += room
        for parts in (self.keys, self.values):
            for layer, window in enumerate(self.windows):
                parts[layer] = longer(parts[layer], min(window, self.longest) - parts[layer].shape[2])

    def keep(self, index: Int[Tensor, " staying"]) -> None:
        """Drop all rows but these."""
        self.keys = [part[index.to(part.device)] for part in self.keys]
        self.values = [part[index.to(part.device)] for part in self.values]
