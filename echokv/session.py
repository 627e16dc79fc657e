"""Decoding on an evicted cache: the one path for answers, lookaheads and oracle queries."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from echokv.attention import forward
from echokv.errors import UsageError
from echokv.prefill import Prefill
from echokv.rows import Rows
from echokv.selection import Selection

ROOM = 32  # tokens that fit before the tail buffer doubles


class Session:
    """Greedy decoding that sees the selected prompt tokens and whatever it has fed itself.

    The full cache is only read. Positions are absolute: the first token fed sits at position L whatever was
    evicted.

    fed: tokens fed so far. next_token: produced, not fed yet; at first the argmax of the prefill's logits.
    queries: per layer [H, len(fed), D] post-RoPE, if the session records.
    """

    def __init__(self, prefill: Prefill, selection: Selection, record: bool = False) -> None:
        if selection.length != prefill.length or len(selection.indices) != prefill.layers:
            raise UsageError(
                f"the selection is of {selection.length} tokens and {len(selection.indices)} layers, the prefill "
                f"of {prefill.length} and {prefill.layers}: select from the same prefill"
            )
        self.prefill = prefill
        self.selection = selection
        self.record = record
        self.fed: list[int] = []
        self.next_token = self._choose(prefill.logits)
        self.queries: list[Float[Tensor, "H fed D"]] = []
        self.tail_keys: list[Float[Tensor, "G fed D"]] = []
        self.tail_values: list[Float[Tensor, "G fed D"]] = []
        self._returned = 0

    def _choose(self, logits: Float[Tensor, " V"]) -> int:
        """The most probable token; stop ids are no choice before `min_new_tokens` tokens."""
        if len(self.fed) < self.prefill.min_new_tokens and self.prefill.stop_ids:
            logits = logits.index_fill(0, torch.tensor(sorted(self.prefill.stop_ids), device=logits.device), -torch.inf)
        return int(logits.argmax())

    @property
    def stopped(self) -> bool:
        """Whether the token produced last is a stop id."""
        return self.next_token in self.prefill.stop_ids

    def step(self) -> int:
        """Feed one token and return the one it produces."""
        advance([self], [1])
        return self.next_token

    def advance(self, steps: int, stop: bool = True) -> None:
        """Feed up to `steps` tokens; with `stop`, end early once a stop id is produced."""
        advance([self], [steps], stop)

    def decode(self, n: int) -> list[int]:
        """Return the next tokens, at most n; a produced stop id is the last of them."""
        return decode_rows([self], n)[0]

    def move(self, selection: Selection) -> None:
        """Swap the prompt part of the cache for another selection; what was fed stays."""
        self.selection = selection

    def take(self, n: int) -> list[int]:
        """Up to n produced tokens that were not returned before."""
        produced = [*self.fed, self.next_token]
        taken = produced[self._returned : self._returned + n]
        self._returned += len(taken)
        return taken

    def missing(self, n: int) -> int:
        """How many more tokens must be fed so that n new ones can be returned."""
        return 0 if self.stopped else max(0, n - (len(self.fed) + 1 - self._returned))

    def feed(self, logits: Float[Tensor, " V"], best: int) -> None:
        """Note that the pending token has been fed and which one follows: `best`, unless that may not be."""
        self.fed.append(self.next_token)
        self.next_token = best if len(self.fed) >= self.prefill.min_new_tokens else self._choose(logits)

    def add_queries(self, new: list[Float[Tensor, "H n D"]]) -> None:
        """Append recorded queries."""
        old = self.queries or [part[:, :0] for part in new]
        self.queries = [torch.cat(pair, dim=1) for pair in zip(old, new, strict=True)]


def advance(sessions: Sequence[Session], steps: Sequence[int], stop: bool = True) -> None:
    """Feed tokens to several sessions of one model in one batch, `steps[i]` at the most to `sessions[i]`.

    Rows leave the batch when they reach their number or, with `stop`, produce a stop id. In float32 every row
    gets the tokens it would get alone; in half precision a near tie may fall the other way.
    """
    left = {id(session): n for session, n in zip(sessions, steps, strict=True) if n > 0}
    active = [session for session in sessions if id(session) in left]
    if not active:
        return
    rows = Rows(active, min(ROOM, max(left.values())))
    device = active[0].prefill.logits.device
    while rows.sessions:
        tokens = torch.tensor([[session.next_token] for session in rows.sessions], device=device)
        positions = [[session.prefill.length + len(session.fed)] for session in rows.sessions]
        logits = forward(active[0].prefill.model, tokens, torch.tensor(positions, device=device), rows)
        # One transfer for all rows: on a GPU each costs a wait for the device.
        for session, row, best in zip(rows.sessions, logits, logits.argmax(dim=-1).tolist(), strict=True):
            session.feed(row, best)
            left[id(session)] -= 1
        rows.advance()
        done = [left[id(session)] == 0 or (stop and session.stopped) for session in rows.sessions]
        if any(done):
            rows.close([row for row, over in enumerate(done) if over])


def decode_rows(sessions: Sequence[Session], n: int | Sequence[int]) -> list[list[int]]:
    """Decode several sessions of one model as one batch; at most n tokens each (or n[i] for session i)."""
    limits = [n] * len(sessions) if isinstance(n, int) else list(n)
    advance(sessions, [session.missing(limit) for session, limit in zip(sessions, limits, strict=True)])
    return [session.take(limit) for session, limit in zip(sessions, limits, strict=True)]
