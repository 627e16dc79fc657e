"""A session whose tokens are chosen by a rule, and that takes tokens from outside: one row of what was compressed."""

from collections.abc import Callable, Sequence
from copy import copy

from jaxtyping import Float
from torch import Tensor

from echokv.choosing import Rule
from echokv.codecs import Codec
from echokv.further import evict, feed
from echokv.prefilling import Needs, Prefill
from echokv.press import Press
from echokv.selection import Selection
from echokv.session import Session


class Chosen(Session):
    """A session whose tokens a rule chooses.

    logits: after the token fed last. unfed: tokens that were generated and that the cache has not seen.
    tell: called with each token. said: the answer so far.
    """

    def __init__(self, prefill: Prefill, selection: Selection, record: bool = True, codec: Codec | None = None) -> None:
        super().__init__(prefill, selection, record, bare=True, codec=codec)
        self.logits: Float[Tensor, " V"] = prefill.logits
        self.unfed: list[int] = []
        self.said: list[int] = []
        self.rule: Rule | None = None
        self.ended = False
        self.tell: Callable[[int], None] | None = None

    def begin(self, rule: Rule, tell: Callable[[int], None] | None) -> None:
        """Choose the first token of an answer."""
        self.rule, self.tell, self.said = rule, tell, []
        self._next(self.logits)

    def feed(self, logits: Float[Tensor, " V"], best: int) -> None:
        self.fed.append(self.next_token)
        self._next(logits)

    def _next(self, logits: Float[Tensor, " V"]) -> None:
        assert self.rule is not None
        self.logits = logits
        self.next_token = self.rule.choose(self.had, logits)
        self.said.append(self.next_token)
        self.ended = self.rule.ends(self.had, self.next_token, logits)
        if self.tell:
            self.tell(self.next_token)

    def close(self) -> None:
        """End an answer, of which the cache has not seen the last token."""
        self.unfed, self.rule, self.tell, self.logits = [self.next_token], None, None, self.logits.clone()

    @property
    def since(self) -> int:
        """Entries that have come since the prompt, those of sliding layers included."""
        prefill, fed = self.prefill, len(self.fed)
        return fed * prefill.layers * prefill.groups + prefill.beside(fed) - prefill.beside()

    @property
    def stored(self) -> int:
        """Bytes of all that the cache holds: what was kept, what was fed since, and positions that a codec needs."""
        return self.bytes + self.since * self.prefill.entry_bytes + sum(part.nbytes for part in self.prefill.at)

    @property
    def ends(self) -> int:
        """The position of the token that follows those generated."""
        return self.prefill.end + len(self.fed) + len(self.unfed)

    @property
    def stopped(self) -> bool:
        return self.ended

    def like(self, other: Session) -> bool:
        return False  # what is drawn for one row is not drawn for another

    def absorb(self, tokens: Sequence[int], needs: Needs) -> None:
        """Take tokens from outside, after those that were generated, and keep of the queries what is needed."""
        self.logits = feed(self, [*self.unfed, *tokens]).clone()
        self.unfed = []
        if not needs.column_sums:
            self.queries = [part[:, max(0, part.shape[1] - needs.window) :].clone() for part in self.queries]

    def evicted(self, press: Press, budget: int | None) -> "Chosen":
        """A session that goes on from here with `budget` entries a head; itself if it holds no more. See `evict`."""
        made = evict(self, press, budget, self.logits)
        if made is None:
            return self
        made.next_token, made.ended, made.rule, made.tell = self.next_token, self.ended, self.rule, self.tell
        made.unfed, made.said = self.unfed, self.said
        return made

    def same(self) -> "Chosen":
        """A session in this state. What both hold they share: nothing of it is ever changed in place."""
        made = copy(self)
        made.fed, made.unfed, made.said = list(self.fed), list(self.unfed), list(self.said)
        made.queries = list(self.queries)
        return made
