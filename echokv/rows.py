"""Several sequences that decode together, each on its own evicted cache (blocks.py)."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from echokv.attention import forward
from echokv.blocks import caches
from echokv.buckets import longer
from echokv.devices import sent
from echokv.generation import BARE, Generation, Ruled
from echokv.session import Session
from echokv.sliding import Rings

Stepped = tuple[Float[Tensor, "rows V"], Int[Tensor, " rows"]]  # logits, and the most probable next tokens
Step = Callable[[], Stepped]
Record = Callable[[Step], Step]  # makes of a step one that repeats it faster


class Rows:
    """The running state of rows that step together; an `Observer` of the model's attention.

    Everything a step reads and writes stays in place while the rows are the same, so that a step can be recorded
    once and replayed.
    """

    def __init__(self, sessions: list[Session], room: int, record: Record | None = None) -> None:
        """Open rows for sessions, with room for that many tokens each, doubled when it is used up.

        Sessions come back in `sessions`, reordered so that the rows of a cache are neighbours.
        record: steps run as they are without it.
        """
        first, device = sessions[0].prefill, sessions[0].prefill.logits.device
        self.model = first.model
        self.room, self.steps = room, 0
        self.sessions, self.caches = caches(sessions, max(len(session.fed) for session in sessions) + room)
        fed = [len(session.fed) for session in self.sessions]
        ends = [[s.prefill.end + n] for s, n in zip(self.sessions, fed, strict=True)]
        self.tokens = sent([[session.next_token] for session in self.sessions], device)
        self.positions = sent(ends, device)
        self.column = sent(fed, device)  # where in the tail the next token of each row goes
        self.number = torch.zeros(1, dtype=torch.long, device=device)  # of the step, counted from the opening
        shape = (len(fed), first.heads, room, first.keys[0].shape[-1])
        asked = any(session.record for session in sessions)
        self.queries = [part.new_zeros(shape) for part in first.keys] if asked else []
        self.rings = Rings([s.rings for s in self.sessions], [end for (end,) in ends], room)
        self._finished: dict[int, int] = {}  # places of rows that are over, and after how many steps they were
        self._record = record
        self._repeat: Step | None = None
        self._warm = False
        self.ruled: list[Ruled] = []
        self._changed()

    def step(self) -> Stepped:
        """Feed every row's pending token; return the logits after it and the most probable next token.

        Runs on the device alone: nothing here depends on a value that the host would have to wait for.
        """
        logits = forward(self.model, self.tokens, self.positions, self)
        best = logits.argmax(dim=-1)
        for ruled in self.ruled:
            logits, best = ruled.change(self.tokens, self.positions, logits, best)
        for counter in (self.positions, self.column, self.number):
            counter += 1
        return logits, best

    def next(self) -> Stepped:
        """One step, recorded or not. The first after a change of the rows is run: recording needs a warm device."""
        if self.steps == self.room:
            self._lengthen()
        if self._record and self._warm and self._repeat is None:
            self._repeat = self._record(self.step)
        self._warm = True
        return self._repeat() if self._repeat else self.step()

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        column = self.column.to(query.device)
        if self.queries:
            self.queries[layer].index_copy_(2, self.number.to(query.device), query)
        query, key, value = query[:, :, 0], key[:, :, 0], value[:, :, 0]
        if len(self.caches) == 1:
            return self.caches[0].attend(layer, query, key, value, scaling, column)[:, None]
        first, parts = 0, []
        for cache in self.caches:
            own = slice(first, first + cache.count)
            first += cache.count
            parts.append(cache.attend(layer, query[own], key[own], value[own], scaling, column[own]))
        return torch.cat(parts)[:, None]

    def slide(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, _window: int) -> Tensor:
        positions = self.positions[:, 0].to(query.device)
        query, key, value = query[:, :, 0], key[:, :, 0], value[:, :, 0]
        return self.rings.attend(layer, query, key, value, scaling, positions)[:, None]

    def follow(self) -> None:
        """After a step whose tokens the sessions have noted: what they want to be fed next."""
        self.tokens.copy_(sent([[session.next_token] for session in self.sessions], self.tokens.device))
        self.steps += 1

    def running(self) -> list[tuple[int, Session]]:
        """The rows that are not over, with their places in what a step returns."""
        return [(place, session) for place, session in enumerate(self.sessions) if place not in self._finished]

    def finish(self, places: list[int]) -> None:
        """These rows are over. They leave at once, or, where steps are recorded, when half of the rows are over.

        A row that stays is fed on and what it gives is left unread: dearer than a smaller step, cheaper than to
        record one.
        """
        self._finished.update(dict.fromkeys(places, self.steps))
        if self._finished and (self._record is None or 2 * len(self._finished) >= len(self.sessions)):
            self._close()

    def _lengthen(self) -> None:
        if self._finished:
            self._close()
        for cache in self.caches:
            cache.grow(self.room)
        self.rings.grow(self.room)
        self.queries = [longer(part, self.room) for part in self.queries]
        self.room *= 2
        self._changed()

    def _changed(self) -> None:
        """Other rows, or more room: what was recorded is of no use, and rules are of rows."""
        self._repeat, self._warm = None, False
        places: dict[Generation, list[int]] = {}
        for place, session in enumerate(self.sessions):
            if session.generation != BARE:
                places.setdefault(session.generation, []).append(place)
        self.ruled = [
            Ruled(generation, rows, [self.sessions[row].had() for row in rows], self.room)
            for generation, rows in places.items()
        ]

    def _close(self) -> None:
        """Hand the tails (and recorded queries) of the rows that are over back to their sessions and drop the rows."""
        leaving, self._finished = self._finished, {}
        first, caches, staying = 0, [], []
        for cache in self.caches:
            rows = range(first, first + cache.count)
            first += cache.count
            for row in set(rows) & leaving.keys():
                session = self.sessions[row]
                session.tail_keys, session.tail_values = cache.tail(row - rows.start, len(session.fed))
                session.rings = self.rings.of(row, session.prefill.end + len(session.fed))
                if session.record:
                    session.add_queries([part[row, :, : leaving[row]].clone() for part in self.queries])
            kept = [row for row in rows if row not in leaving]
            staying += kept
            if kept:
                caches.append(cache)
            if 0 < len(kept) < cache.count:
                cache.keep([row - rows.start for row in kept])
        self.caches = caches
        self.sessions = [self.sessions[row] for row in staying]
        if not staying:
            return
        index = torch.tensor(staying, dtype=torch.long)
        self.queries = [part[sent(index, part.device)] for part in self.queries]
        index = sent(index, self.column.device)
        self.rings.keep(index)
        self.tokens, self.positions, self.column = (part[index] for part in (self.tokens, self.positions, self.column))
        self._changed()
