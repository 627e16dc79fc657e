"""The caches of rows that decode together: what a selection kept of the prompt, and the tokens fed since.

Both have their place in one preallocated buffer, so that a key is only copied when the room is used up, and one softmax
covers all. Heads of like size form a bucket of their layer. A row that keeps the whole prompt reads the shared cache
where it lies; one that stores codes reads them back a layer at a time.
"""

from typing import Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from echokv import scores
from echokv.buckets import Units, longer, padding, spread
from echokv.scores import accumulator, products
from echokv.session import Session


class Cache(Protocol):
    """What `Rows` asks of the caches of some neighbouring rows.

    The tail is the tokens fed since the prompt: `capacity` places, of which a cache knows which are in use.
    """

    count: int

    def attend(
        self,
        layer: int,
        query: Float[Tensor, "rows H D"],
        key: Float[Tensor, "rows G D"],
        value: Float[Tensor, "rows G D"],
        scaling: float,
        column: Int[Tensor, " rows"],
    ) -> Float[Tensor, "rows H D"]:
        """Write one new token per row at its column of the tail, and attend to all that the row has."""
        ...

    def tail(self, row: int, used: int) -> tuple[list[Float[Tensor, "G used D"]], list[Float[Tensor, "G used D"]]]:
        """Keys and values, per layer, of the tokens fed to a row."""
        ...

    def grow(self, room: int) -> None:
        """Lengthen the tail."""
        ...

    def keep(self, rows: list[int]) -> None:
        """Drop all rows but these."""
        ...


class Block:
    """Rows that keep parts of their prompts, with the same number of heads."""

    def __init__(self, sessions: list[Session], capacity: int) -> None:
        first = sessions[0].prefill
        self.count, self.groups, self.heads = len(sessions), first.groups, sessions[0].selection.heads
        self.layers = []
        for number, like in enumerate(first.keys):
            kept = [n for session in sessions for n in session.selection.kept[number]]
            layer = Units(kept, self.heads, like, capacity)
            for row, session in enumerate(sessions):
                layer.fill(row, *session.kept(number))
                if session.fed:
                    fed = session.tail_keys[number], session.tail_values[number]
                    layer.fill_tail(row, *(spread(part, self.heads) for part in fed))
            self.layers.append(layer)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, column: Tensor
    ) -> Float[Tensor, "rows H D"]:
        dim = query.shape[-1]
        by_unit = query.reshape(self.count * self.heads, -1, dim)
        key, value = (spread(part[:, :, None], self.heads).reshape(-1, dim) for part in (key, value))
        return self.layers[layer].attend(by_unit, key, value, scaling, column).view(self.count, -1, dim)

    def tail(self, row: int, used: int) -> tuple[list[Tensor], list[Tensor]]:
        every = self.heads // self.groups
        keys, values = zip(*(layer.tail(row, used, every) for layer in self.layers), strict=True)
        return list(keys), list(values)

    def grow(self, room: int) -> None:
        for layer in self.layers:
            layer.grow(room)

    def keep(self, rows: list[int]) -> None:
        self.count = len(rows)
        for layer in self.layers:
            layer.keep({row: number for number, row in enumerate(rows)})


class Alone:
    """One row whose prompt lies elsewhere: only the tail is its own."""

    count = 1

    def __init__(self, session: Session, capacity: int) -> None:
        prefill = session.prefill
        self.session, self.heads = session, session.selection.heads
        self.padding = [
            padding(kept, like) if min(kept) < max(kept) else None
            for kept, like in zip(session.selection.kept, prefill.keys, strict=True)
        ]
        shape = (1, prefill.groups, capacity, prefill.keys[0].shape[-1])
        self.tail_keys = [part.new_zeros(shape) for part in prefill.keys]
        self.tail_values = [part.new_zeros(shape) for part in prefill.values]
        kind = accumulator(prefill.keys[0].dtype)
        self.masks = [part.new_full((1, capacity), -torch.inf, dtype=kind) for part in prefill.keys]
        for layer in range(prefill.layers if session.fed else 0):
            self.tail_keys[layer][0, :, : len(session.fed)] = session.tail_keys[layer]
            self.tail_values[layer][0, :, : len(session.fed)] = session.tail_values[layer]
            self.masks[layer][:, : len(session.fed)] = 0

    def prompt(self, layer: int) -> tuple[Float[Tensor, "heads n D"], Float[Tensor, "heads n D"]]:
        """Keys and values of the prompt: read back from codes, this layer's alone."""
        return self.session.kept(layer)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, column: Tensor
    ) -> Float[Tensor, "1 H D"]:
        tail_keys, tail_values, mask = self.tail_keys[layer], self.tail_values[layer], self.masks[layer]
        tail_keys.index_copy_(2, column, key[:, :, None])
        tail_values.index_copy_(2, column, value[:, :, None])
        mask.index_fill_(1, column, 0)
        by_head = query.view(self.heads, -1, query.shape[-1])
        keys, values = self.prompt(layer)
        logits = products(by_head, keys, scaling, mask.dtype)
        if (beyond := self.padding[layer]) is not None:
            logits += beyond
        tail = products(by_head, spread(tail_keys[0], self.heads), scaling, mask.dtype) + mask
        weights = torch.softmax(torch.cat([logits, tail], dim=-1), dim=-1).to(values.dtype)
        own, since = weights[..., : logits.shape[-1]], weights[..., logits.shape[-1] :]
        found = torch.bmm(own, values) + torch.bmm(since, spread(tail_values[0], self.heads))
        return found.view(1, -1, query.shape[-1])

    def tail(self, row: int, used: int) -> tuple[list[Tensor], list[Tensor]]:
        keys, values = ([part[row, :, :used].clone() for part in some] for some in (self.tail_keys, self.tail_values))
        return keys, values

    def grow(self, room: int) -> None:
        self.tail_keys = [longer(part, room) for part in self.tail_keys]
        self.tail_values = [longer(part, room) for part in self.tail_values]
        self.masks = [F.pad(part, (0, room), value=-torch.inf) for part in self.masks]

    def keep(self, rows: list[int]) -> None:
        assert rows == [0]


class Whole(Alone):
    """One row that keeps its whole prompt: of the shared cache nothing is copied."""

    def prompt(self, layer: int) -> tuple[Float[Tensor, "heads n D"], Float[Tensor, "heads n D"]]:
        return self.session.prefill.keys[layer], self.session.prefill.values[layer]


def caches(sessions: list[Session], capacity: int) -> tuple[list[Session], list[Cache]]:
    """The sessions, reordered so that the rows of a cache are neighbours, and their caches."""
    alone = [session for session in sessions if session.codec and not session.codec.fake]
    made: list[Cache] = [Alone(session, capacity) for session in alone]
    others = [session for session in sessions if session not in alone]
    if others and _takes_units(others):
        from echokv.units import Ragged  # imports Triton

        return [*alone, *others], [*made, Ragged(others, capacity)]
    whole = [session for session in others if session.whole]
    made += [Whole(session, capacity) for session in whole]
    forms: dict[int, list[Session]] = {}
    # Rows of like size are neighbours in their bucket, too: their queries need not be reordered.
    for session in sorted(others, key=lambda one: max(map(max, one.selection.kept)).bit_length()):
        if session not in whole:
            forms.setdefault(session.selection.heads, []).append(session)
    made += [Block(some, capacity) for some in forms.values()]
    return [*alone, *whole, *(session for some in forms.values() for session in some)], made


def _takes_units(sessions: list[Session]) -> bool:
    """Whether Triton's kernels take the heads of these rows as they are: on CUDA, where Triton runs.

    Not those of a codec: the kernels read keys and values in the model's dtype from where they lie, and know nothing
    of codes and scales.
    """
    if any(session.codec and not session.codec.fake for session in sessions):
        return False
    keys = sessions[0].prefill.keys
    kernels = scores.triton_kernels() if all(part.is_cuda for part in keys) else None
    return kernels is not None and all(map(kernels.fits, keys))
