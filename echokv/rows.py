"""Several sequences that decode together, each on its own evicted cache.

A row's keys are in two parts: what its selection kept of the prompt (blocks.py), and the tail, the tokens fed since,
in one preallocated buffer for all rows. Both parts enter one softmax, so no key is ever copied to append another.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from echokv.attention import forward
from echokv.blocks import Block, form
from echokv.scores import accumulator

if TYPE_CHECKING:
    from echokv.session import Session

Step = Callable[[], tuple[Float[Tensor, "rows V"], Int[Tensor, " rows"]]]


class Rows:
    """The running state of rows that step together; an `Observer` of the model's attention.

    Everything a step reads and writes stays in place while the rows are the same, so that a step can be recorded
    once and replayed.
    """

    def __init__(self, sessions: list["Session"], room: int, record: Callable[[Step], Step] | None = None) -> None:
        """Open rows for sessions, with room for that many tokens each, doubled when it is used up.

        Sessions come back in `sessions`, reordered so that the rows of a block are neighbours.
        record: makes of a step one that repeats it faster; steps run as they are without it.
        """
        self.sessions = sorted(sessions, key=form)
        forms = [form(session) for session in self.sessions]
        self.blocks = [
            Block([s for s, own in zip(self.sessions, forms, strict=True) if own == one])
            for one in dict.fromkeys(forms)
        ]
        first, device = self.sessions[0].prefill, self.sessions[0].prefill.logits.device
        fed = [len(session.fed) for session in self.sessions]
        self.model = first.model
        self.room, self.steps = room, 0
        self.tokens = torch.tensor([[session.next_token] for session in self.sessions], device=device)
        ends = [[s.prefill.length + n] for s, n in zip(self.sessions, fed, strict=True)]
        self.positions = torch.tensor(ends, device=device)
        self.row = torch.arange(len(fed), device=device)
        self.column = torch.tensor(fed, device=device)  # where in the tail the next token of each row goes
        self.number = torch.zeros(1, dtype=torch.long, device=device)  # of the step, counted from the opening
        shape = (len(fed), first.groups, max(fed) + room, first.keys[0].shape[-1])
        self.keys = [part.new_zeros(shape) for part in first.keys]
        self.values = [part.new_zeros(shape) for part in first.values]
        for row, session in enumerate(self.sessions):
            for layer in range(first.layers if session.fed else 0):
                self.keys[layer][row, :, : fed[row]] = session.tail_keys[layer]
                self.values[layer][row, :, : fed[row]] = session.tail_values[layer]
        asked = any(session.record for session in self.sessions)
        heads = (len(fed), first.heads, room, shape[-1])
        self.queries = [part.new_zeros(heads) for part in first.keys] if asked else []
        self._record, self._warm = record, False
        self._repeat: Step | None = None

    def step(self) -> tuple[Float[Tensor, "rows V"], Int[Tensor, " rows"]]:
        """Feed every row's pending token; return the logits after it and the most probable next token.

        Runs on the device alone: nothing here depends on a value that the host would have to wait for.
        """
        places = torch.arange(self.keys[0].shape[2], device=self.column.device)
        hidden = places > self.column[:, None]
        zeros = torch.zeros(hidden.shape, dtype=accumulator(self.keys[0].dtype), device=hidden.device)
        self.mask = zeros.masked_fill(hidden, -torch.inf)[:, None, None]
        logits = forward(self.model, self.tokens, self.positions, self)
        for counter in (self.positions, self.column, self.number):
            counter += 1
        return logits, logits.argmax(dim=-1)

    def next(self) -> tuple[Float[Tensor, "rows V"], Int[Tensor, " rows"]]:
        """One step, recorded or not. The first after a change of the rows is run: recording needs a warm device."""
        if self._record and self._warm and self._repeat is None:
            self._repeat = self._record(self.step)
        self._warm = True
        return self._repeat() if self._repeat else self.step()

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        keys, values = self.keys[layer], self.values[layer]
        row, column = self.row.to(keys.device), self.column.to(keys.device)
        keys[row, :, column] = key[:, :, 0]
        values[row, :, column] = value[:, :, 0]
        if self.queries:
            self.queries[layer].index_copy_(2, self.number.to(query.device), query)
        rows, heads, _, dim = query.shape
        scaled = (query[:, :, 0] * scaling).view(rows, key.shape[1], -1, dim)
        tail = (scaled @ keys.mT).to(accumulator(keys.dtype)) + self.mask.to(keys.device)
        out = torch.empty_like(scaled)
        first = 0
        for block in self.blocks:
            own = slice(first, first + block.count)
            first += block.count
            out[own] = block.attend(layer, scaled[own], tail[own], values[own])
        return out.view(rows, 1, heads, dim)

    def follow(self) -> None:
        """After a step whose tokens the sessions have noted: what they want to be fed next, and room for it."""
        self.tokens.copy_(torch.tensor([[session.next_token] for session in self.sessions]))
        self.steps += 1
        if self.steps == self.room:
            self.keys, self.values = (self._longer(parts) for parts in (self.keys, self.values))
            self.queries = self._longer(self.queries)
            self.room *= 2
            self._changed()

    def _longer(self, parts: list[Tensor]) -> list[Tensor]:
        more = [(*part.shape[:2], self.room, part.shape[3]) for part in parts]
        return [torch.cat([part, part.new_zeros(shape)], dim=2) for part, shape in zip(parts, more, strict=True)]

    def _changed(self) -> None:
        self._repeat, self._warm = None, False

    def close(self, leaving: list[int]) -> None:
        """Hand the tails (and recorded queries) of these rows back to their sessions and drop the rows."""
        for row in leaving:
            session = self.sessions[row]
            used = len(session.fed)
            session.tail_keys = [part[row, :, :used].clone() for part in self.keys]
            session.tail_values = [part[row, :, :used].clone() for part in self.values]
            if session.record:
                session.add_queries([part[row, :, : self.steps].clone() for part in self.queries])
        staying = [row for row in range(len(self.sessions)) if row not in set(leaving)]
        self.sessions = [self.sessions[row] for row in staying]
        if staying:
            self._keep(staying)

    def _keep(self, rows: list[int]) -> None:
        first, blocks = 0, []
        for block in self.blocks:
            local = [row - first for row in rows if first <= row < first + block.count]
            first += block.count
            if local:
                if len(local) < block.count:
                    block.keep(local)
                blocks.append(block)
        self.blocks = blocks
        index = torch.tensor(rows)
        self.keys, self.values, self.queries = (
            [part[index.to(part.device)] for part in parts] for parts in (self.keys, self.values, self.queries)
        )
        index = index.to(self.column.device)
        self.tokens, self.positions, self.column = (part[index] for part in (self.tokens, self.positions, self.column))
        self.row = torch.arange(len(rows), device=index.device)
        self._changed()
