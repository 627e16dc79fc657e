"""The cache of all rows on a GPU: every head's kept tokens where they lie, for the kernels of `echokv.ragged`."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from echokv.buckets import longer
from echokv.devices import sent
from echokv.ragged import Layer, Unit
from echokv.session import Session


class Ragged:
    """Rows of any form. Of the prompt, a row that keeps everything reads the shared cache; others hold copies."""

    def __init__(self, sessions: list[Session], capacity: int) -> None:
        first = sessions[0].prefill
        self.count, self.heads = len(sessions), first.heads
        self.layers = []
        for number, like in enumerate(first.keys):
            units = [unit for row, session in enumerate(sessions) for unit in _units(session, number, row)]
            shape = (len(sessions), like.shape[0], capacity, like.shape[-1])
            tails = like.new_zeros(shape), like.new_zeros(shape)
            for row, session in enumerate(sessions):
                if session.fed:
                    tails[0][row, :, : len(session.fed)] = session.tail_keys[number]
                    tails[1][row, :, : len(session.fed)] = session.tail_values[number]
            self.layers.append(Layer(units, self.heads, *tails))

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, column: Tensor, mask: Tensor
    ) -> Float[Tensor, "rows H D"]:
        return self.layers[layer].attend(query, key, value, scaling, column)

    def tail(self, row: int, used: int) -> tuple[list[Tensor], list[Tensor]]:
        keys = [layer.tail_keys[row, :, :used].clone() for layer in self.layers]
        return keys, [layer.tail_values[row, :, :used].clone() for layer in self.layers]

    def grow(self, room: int) -> None:
        self.layers = [
            Layer(layer.units, self.heads, longer(layer.tail_keys, room), longer(layer.tail_values, room))
            for layer in self.layers
        ]

    def keep(self, rows: list[int]) -> None:
        self.count = len(rows)
        number = {row: place for place, row in enumerate(rows)}
        index = torch.tensor(rows)
        made = []
        for layer in self.layers:
            units = [unit.moved(number[unit.row]) for unit in layer.units if unit.row in number]
            own = sent(index, layer.tail_keys.device)
            made.append(Layer(units, self.heads, layer.tail_keys[own], layer.tail_values[own]))
        self.layers = made


def _units(session: Session, layer: int, row: int) -> Iterator[Unit]:
    prefill, kept = session.prefill, session.selection.kept[layer]
    parts = prefill.keys[layer], prefill.values[layer]
    if session.codec or kept != [prefill.length] * prefill.groups:
        keys, values = session.kept(layer)
    else:
        keys, values = parts
    count = prefill.heads // len(kept)
    for place, n in enumerate(kept):
        yield Unit(row, place * count, count, keys[place, :n], values[place, :n])
