"""Policies that decode a few tokens ahead and let their queries choose what stays."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from echokv.decoding import alone
from echokv.devices import runs
from echokv.errors import UsageError
from echokv.masses import joined, masses
from echokv.prefilling import Needs, Prefill
from echokv.press import Press, Scores
from echokv.scores import Pooling, pool, protect
from echokv.selection import Selection, cut
from echokv.session import Ahead, Session, Stretch, ahead


@dataclass(frozen=True, eq=False)
class Round:
    """One stretch of lookahead on one workspace.

    workspace: the prompt tokens that were visible. queries: per layer [H, steps, D] post-RoPE, of the tokens
    fed. tokens: the tokens fed, the first of them at position L + first.
    """

    workspace: Selection
    queries: list[Float[Tensor, "H steps D"]]
    tokens: list[int]
    first: int = 0


@dataclass(frozen=True, kw_only=True)
class Lookahead(Press):
    """Decode `steps` tokens on a workspace of the prompt, score the whole prompt with their queries.

    LAQ, EchoKV and the rows of EchoKV's Table 5 are settings of this one class.

    steps: tokens fed, T. workspace: tokens per head of the workspace, B1; None follows the budget.
    bootstrap: how the first workspace is chosen, by "proposals" (the last `anchors` prompt queries rotated to
        the T positions after the prompt) or by a prompt "window" (as SnapKV, with `bootstrap_pooling`; None
        takes `pooling`).
    refresh_at: steps after which the queries fed since the last refresh choose a new workspace; what was fed
        stays in it.
    stage2_window: last prompt tokens that are always kept, and whose queries join the final scoring.
    mask: "none" lets every lookahead query see the whole prompt; "official" hides the last n-1-j prompt tokens
        from the j-th of the n final queries, as the public LAQ code does.
    decoding: by which rule its tokens follow: "answer", those of the answer to come (no stop id before
        `min_new_tokens`, the checkpoint's changes of the logits), or "bare", the most probable token as it is, be it a
        stop id, as the public LAQ code does.
    eos: "stop" ends the lookahead when a stop id is produced, "continue" decodes past it.
    """

    least_steps: ClassVar[int] = 1
    steps: int = 8
    workspace: int | None = 1024
    bootstrap: Literal["proposals", "window"] = "proposals"
    bootstrap_pooling: Pooling | None = None
    refresh_at: tuple[int, ...] | None = ()
    anchors: int = 1
    window: int = 32
    kernel: int = 7
    pooling: Pooling = "none"
    stage2_window: int = 0
    mask: Literal["official", "none"] = "none"
    decoding: Literal["answer", "bare"] = "answer"
    eos: Literal["stop", "continue"] = "stop"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least("steps", self.least_steps)
        for field in ("anchors", "window"):
            self.at_least(field, 1)
        self.odd("kernel")
        self.at_least("stage2_window", 0)
        if self.workspace is not None:
            self.at_least("workspace", self._least_workspace)
        refresh = self.refreshes
        if any(not 0 < step < self.steps for step in refresh) or sorted(set(refresh)) != list(refresh):
            raise UsageError(
                f"{type(self).__name__}.refresh_at is {list(refresh)}; it must ascend between 1 and {self.steps - 1}"
            )

    @property
    def refreshes(self) -> tuple[int, ...]:
        """Steps after which the workspace is rebuilt."""
        return tuple(self.refresh_at or ())

    @property
    def _least_workspace(self) -> int:
        return self.window + 1 if self.bootstrap == "window" else 1

    @property
    def needs(self) -> Needs:
        first = self.window if self.bootstrap == "window" else self.anchors
        return Needs(window=max(first, self.stage2_window))

    @property
    def least_budget(self) -> int:
        own = self.stage2_window + 1
        return max(own, self._least_workspace) if self.workspace is None else own

    def scope(self, budget: int) -> Hashable:
        return budget if self.workspace is None else None

    def score(self, prefill: Prefill, budget: int | None) -> Ahead[Scores]:
        """The attention of all lookahead queries together (EchoKV, section 4.3; Algorithm 1, line 11)."""
        rounds = yield from self.ahead(prefill, budget)
        joint = []
        for layer in range(prefill.layers):
            window = prefill.last_queries(layer, self.stage2_window)
            joint.append(torch.cat([window, *(part.queries[layer] for part in rounds)], dim=1))
        return self._final(joint, prefill)

    def rounds(self, prefill: Prefill, budget: int | None = None) -> list[Round]:
        """Decode ahead; the workspace may change between rounds.

        If a stop id is produced, the round in progress is the last and may be short.
        Raises UsageError if the workspace follows the budget and none is given.
        """
        return alone(self.ahead(prefill, budget))

    def ahead(self, prefill: Prefill, budget: int | None) -> Ahead[list[Round]]:
        """`rounds`, resting where tokens are to be fed."""
        if self.workspace is None and budget is None:
            raise UsageError("this press's workspace follows the budget: call rounds(prefill, budget)")
        size = self.workspace or budget or 0
        workspace = self._take(self._bootstrap(prefill, size), size, prefill)
        session, rounds = Session(prefill, workspace, record=True, bare=self.decoding == "bare"), []
        ends = [*self.refreshes, self.steps]
        for start, end in zip([0, *ends], ends, strict=False):
            yield Stretch(session, end - start, stop=self.eos == "stop")
            queries = [part[:, start:] for part in session.queries]
            done = Round(session.selection, queries, session.fed[start:], start)
            rounds.append(done)
            if len(session.fed) < end or (self.eos == "stop" and session.stopped):
                break
            if end < self.steps:
                scores = yield from ahead(self.rescore(done, prefill))
                session.move(self._take(scores, size, prefill))
        return rounds

    def _take(self, scores: Scores | None, size: int, prefill: Prefill) -> Selection:
        if scores is None or prefill.length <= size:
            return Selection.everything(prefill.layers, prefill.groups, prefill.length)
        return cut(scores, [[[size] * len(layer) for layer in scores]])[0]

    def _bootstrap(self, prefill: Prefill, size: int) -> Scores | None:
        if prefill.length <= size:
            return None
        pooling = self.bootstrap_pooling or self.pooling
        if self.bootstrap == "window":
            return self.window_score(prefill, self.window, self.kernel, pooling)
        return self._scores(self.proposals(prefill), prefill, pooling)

    def proposals(self, prefill: Prefill) -> list[Float[Tensor, "H anchors*steps D"]]:
        """Per layer the last `anchors` prompt queries, each rotated to the T positions after the prompt (Eq. 2)."""
        positions = torch.arange(prefill.end, prefill.end + self.steps)
        anchors = min(self.anchors, prefill.length)
        sources = range(prefill.end - anchors, prefill.end)
        found: list[Tensor] = []
        for device in runs(prefill.keys, prefill.layers):
            for _, alike in groupby(device, key=prefill.turns):
                some = list(alike)
                last = joined([prefill.last_queries(layer, anchors) for layer in some])
                turned = [prefill.rotate(some[0], last[:, i], source, positions) for i, source in enumerate(sources)]
                found += torch.cat(turned, dim=1).view(len(some), prefill.heads, -1, last.shape[-1])
        return found

    def rescore(self, done: Round, prefill: Prefill) -> Scores | Ahead[Scores]:
        """The scores by which a refresh chooses the next workspace: of the queries of the round just done.

        As `score`, it may be a generator that decodes ahead.
        """
        return self.attention(done.queries, prefill)

    def attention(self, queries: Sequence[Float[Tensor, "H n D"]], prefill: Prefill) -> Scores:
        """Score the prompt by a set of queries, given per layer (Eq. 3, and this press's pooling)."""
        return self._scores(queries, prefill, self.pooling)

    def _scores(self, queries: Sequence[Float[Tensor, "H n D"]], prefill: Prefill, pooling: Pooling) -> Scores:
        parts = masses(prefill, queries, precision=self.precision)
        return self.by_layer((pool(self.by_head(part, prefill), self.kernel, pooling) for part in parts), prefill)

    def _final(self, joint: Sequence[Float[Tensor, "H n D"]], prefill: Prefill) -> Scores:
        length, n = prefill.length, joint[0].shape[1]
        causal = n if self.mask == "official" else self.stage2_window  # so many of the queries do not see all
        visible = (torch.arange(n) + length - causal + 1).clamp(min=1, max=length) if causal else None
        before = length - self.stage2_window
        by_head = (self.by_head(part[:, :before], prefill) for part in masses(prefill, joint, visible, self.precision))
        pooled = (pool(part, self.kernel, self.pooling) for part in by_head)
        return self.by_layer((protect(part, self.stage2_window) for part in pooled), prefill)


@dataclass(frozen=True, kw_only=True)
class EchoKV(Lookahead):
    """EchoKV (Zou and Yuan, arXiv 2611.05903, section 4 and Algorithm 1).

    Proposals at future positions choose the first workspace; the queries of the first half of the lookahead
    rebuild it; those of all steps choose what stays. `refresh_at=None` is the paper's single refresh after
    T // 2 steps; `refresh_at=()` is Table 5's "Stage1 only", `bootstrap="window"` its "Iterative only".
    """

    least_steps: ClassVar[int] = 2
    refresh_at: tuple[int, ...] | None = None

    @property
    def refreshes(self) -> tuple[int, ...]:
        return (self.steps // 2,) if self.refresh_at is None else tuple(self.refresh_at)
