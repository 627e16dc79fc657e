"""What an eviction policy is."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from echokv.decoding import alone
from echokv.errors import UsageError
from echokv.fields import check
from echokv.masses import window_masses
from echokv.prefilling import Needs, Prefill
from echokv.scores import Pooling, Precision, pool, protect, sum_groups
from echokv.selection import Keep, Selection, cut
from echokv.session import Ahead, ahead
from echokv.shapes import Shape

Granularity = Literal["kv_head", "query_head"]
Scores = list[Float[Tensor, "heads L"]]  # one a layer


@dataclass(frozen=True, kw_only=True)
class Press:
    """A policy that decides, once after the prefill, which prompt tokens stay in the cache.

    A method writes `score`, and where it wants them `needs`, `least_budget`, `layer_budgets` or `head_budgets`. Its
    fields' values are held against their annotations; what else they must be, it says in `__post_init__`.

    granularity: "kv_head" selects once per KV head and stores G heads; "query_head" selects per query head
        and stores H heads, as implementations that repeat the keys before scoring do.
    precision: see `attention_mass`.
    """

    takes_budget: ClassVar[bool] = True
    granularity: Granularity = "kv_head"
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        check(self)

    @property
    def needs(self) -> Needs:
        """What the prefill must record for this press."""
        return Needs()

    @property
    def files(self) -> Mapping[str, str]:
        """Paths of the files that it reads, by the fields that name them: their content decides, not where they lie."""
        return {}

    def check_model(self, shape: Shape) -> None:
        """Raise UsageError for a model that a file it reads is not of; asked before the model's weights are read."""

    @property
    def least_budget(self) -> int:
        """The smallest budget the method is defined for."""
        return 1

    def score(self, prefill: Prefill, budget: int | None) -> Scores | Ahead[Scores]:
        """Per layer, a score for every prompt token and head; a protected token has +inf.

        A policy that decodes ahead writes it as a generator: it yields each `Stretch` that it wants fed, goes on once
        that has been done, and returns the scores in the end. Whoever resumes it may feed others along with it.

        budget: None if `scope` says that the scores do not depend on it.
        """
        raise NotImplementedError

    def scores(self, prefill: Prefill, budget: int | None = None) -> Scores:
        """What `score` comes to."""
        return alone(ahead(self.score(prefill, budget)))

    def scope(self, budget: int) -> Hashable:
        """What of the budget the scores depend on, None if on nothing; budgets with one scope share one scoring."""
        return None

    def layer_budgets(self, budget: int, prefill: Prefill) -> list[int]:
        """Tokens each head of each layer keeps."""
        return [budget] * prefill.layers

    def head_budgets(self, scores: Scores, budget: int, prefill: Prefill) -> Keep:
        """Tokens that each head keeps, per layer: those of its layer, unless a policy shares them out by the scores."""
        budgets = self.layer_budgets(budget, prefill)
        _check_layers(self, budgets, prefill)
        return [[size] * len(layer) for size, layer in zip(budgets, scores, strict=True)]

    def select(self, prefill: Prefill, budget: int | None = None) -> Selection:
        """Keep the tokens with the highest scores; everything if the prompt fits the budget.

        Raises UsageError for a budget below `least_budget`, or none where one is needed.
        """
        return self.select_all(prefill, [budget])[0]

    def select_all(self, prefill: Prefill, budgets: Sequence[int | None]) -> list[Selection]:
        """One selection per budget; scores are computed once for all budgets that share them.

        Raises UsageError also for scores or layer budgets that are not of the prefill's layers, heads and tokens.
        """
        return alone(self.selecting(prefill, budgets))

    def selecting(self, prefill: Prefill, budgets: Sequence[int | None]) -> Ahead[list[Selection]]:
        """`select_all`, resting where tokens are to be fed: what runs several policies side by side resumes it."""
        asked = [self.check(budget) for budget in budgets]
        made = {}
        scopes: dict[Hashable, list[int]] = {}
        for budget in dict.fromkeys(asked):
            if prefill.length <= budget:
                made[budget] = Selection.everything(prefill.layers, prefill.groups, prefill.length)
            else:
                scopes.setdefault(self.scope(budget), []).append(budget)
        with prefill.shared.held():
            for sharing in scopes.values():
                chosen = yield from ahead(self.choose(prefill, sharing))
                made.update(zip(sharing, chosen, strict=True))
        return [made[budget] for budget in asked]

    def choose(self, prefill: Prefill, budgets: Sequence[int]) -> list[Selection] | Ahead[list[Selection]]:
        """Selections at budgets below the prompt's length that share their scores: the tokens of the highest.

        A policy that needs no scores writes this instead of `score`.
        """
        scores = yield from ahead(self.score(prefill, None if self.scope(budgets[0]) is None else budgets[0]))
        _check_scores(self, scores, prefill)
        keeps = [self.head_budgets(scores, budget, prefill) for budget in budgets]
        for keep in keeps:
            _check_heads(self, keep, prefill)
        return cut(scores, keeps)

    def check(self, budget: int | None) -> int:
        """Return the budget. Raises UsageError if the method has no meaning at it."""
        if budget is None or budget < self.least_budget:
            raise UsageError(
                f"budget {budget} is too small for {type(self).__name__}: it needs at least {self.least_budget}"
            )
        return budget

    def heads_of(self, prefill: Prefill) -> int:
        """How many heads of a layer this press selects for."""
        return prefill.groups if self.granularity == "kv_head" else prefill.heads

    def by_head(self, mass: Float[Tensor, "H L"], prefill: Prefill) -> Float[Tensor, "heads L"]:
        """Reduce scores of query heads, of one layer or several, to the heads that this press selects for."""
        groups = len(mass) * prefill.groups // prefill.heads
        return mass if self.granularity == "query_head" else sum_groups(mass, groups)

    def by_layer(self, parts: Iterable[Float[Tensor, "layers*heads L"]], prefill: Prefill) -> Scores:
        """Scores of each layer, given those of neighbouring layers in one tensor."""
        heads = self.heads_of(prefill)
        return [layer for part in parts for layer in part.view(-1, heads, part.shape[-1])]

    def by_kv_head(self, scores: Float[Tensor, "G L"], prefill: Prefill) -> Float[Tensor, "heads L"]:
        """Scores of KV heads for the heads that this press selects for: query heads repeat those of their KV head."""
        repeats = prefill.heads // prefill.groups if self.granularity == "query_head" else 1
        return scores.repeat_interleave(repeats, dim=0)

    def window_score(
        self, prefill: Prefill, window: int, kernel: int, pooling: Pooling
    ) -> list[Float[Tensor, "heads L"]]:
        """Attention of the last `window` prompt queries on the tokens before them, pooled; the window is kept.

        Each window query sees the keys up to its own position (SnapKV, Li et al. 2024, section 4).
        """
        before = prefill.length - window
        by_head = (self.by_head(mass[:, :before], prefill) for mass in window_masses(prefill, window, self.precision))
        return self.by_layer((protect(pool(part, kernel, pooling), window) for part in by_head), prefill)

    def at_least(self, field: str, least: float) -> None:
        """Raise UsageError if the field is below a limit."""
        value = getattr(self, field)
        if value < least:
            raise UsageError(f"{type(self).__name__}.{field} is {value}; it must be at least {least}")

    def at_most(self, field: str, most: float) -> None:
        """Raise UsageError if the field is above a limit."""
        value = getattr(self, field)
        if value > most:
            raise UsageError(f"{type(self).__name__}.{field} is {value}; it must be at most {most}")

    def odd(self, field: str) -> None:
        """Raise UsageError unless the field is odd and positive: an even kernel has no middle."""
        value = getattr(self, field)
        if value < 1 or value % 2 == 0:
            raise UsageError(f"{type(self).__name__}.{field} is {value}; it must be odd and positive")


def _check_scores(press: Press, scores: object, prefill: Prefill) -> None:
    """Raise UsageError unless there is one floating-point [heads, L] tensor a layer, on the device of its keys."""
    who = f"{type(press).__name__}.score"
    if not isinstance(scores, Sequence) or len(scores) != prefill.layers:
        given = f"{len(scores)} layers" if isinstance(scores, Sequence) else f"a value of type {type(scores).__name__}"
        raise UsageError(f"{who} gave {given}; it must be a list of {prefill.layers} tensors, one a layer")
    shape = [press.heads_of(prefill), prefill.length]
    for layer, (one, keys) in enumerate(zip(scores, prefill.keys, strict=True)):
        if not isinstance(one, Tensor) or list(one.shape) != shape:
            found = list(one.shape) if isinstance(one, Tensor) else f"a value of type {type(one).__name__}"
            raise UsageError(
                f"{who} gave {found} for layer {layer}; it must be {shape}, {press.granularity}s by prompt tokens"
            )
        if not one.is_floating_point() or one.device != keys.device:
            raise UsageError(
                f"{who} gave {one.dtype} on {one.device} for layer {layer}; it must be floating point on {keys.device}"
            )


def _check_layers(press: Press, budgets: Sequence[int], prefill: Prefill) -> None:
    """Raise UsageError unless every layer is to keep a number of tokens that the prompt has."""
    if len(budgets) != prefill.layers or not all(1 <= size <= prefill.length for size in budgets):
        raise UsageError(
            f"{type(press).__name__}.layer_budgets gave {list(budgets)}; it must be {prefill.layers} numbers, "
            f"one a layer, from 1 to the prompt's {prefill.length}"
        )


def _check_heads(press: Press, keep: Keep, prefill: Prefill) -> None:
    """Raise UsageError unless every head of every layer is to keep a number of tokens that the prompt has."""
    who = f"{type(press).__name__}.head_budgets"
    if len(keep) != prefill.layers:
        raise UsageError(f"{who} gave {len(keep)} lists; it must be {prefill.layers}, one a layer")
    heads = press.heads_of(prefill)
    for layer, sizes in enumerate(keep):
        if len(sizes) != heads or not all(0 <= size <= prefill.length for size in sizes):
            raise UsageError(
                f"{who} gave {list(sizes)} for layer {layer}; it must be {heads} numbers, one a head, "
                f"from 0 to the prompt's {prefill.length}"
            )
