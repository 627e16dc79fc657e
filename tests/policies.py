"""Every policy beside its naive twin, and what comparing the two needs."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from baselines.h2o import H2O
from baselines.laq import LAQ
from baselines.pyramidkv import PyramidKV
from baselines.snapkv import SnapKV
from baselines.streaming_llm import StreamingLLM
from echokv import EchoKV, Needs, Prefill, Press, Selection, prefill
from tests import twin
from tests.models import prompt, tiny
from tests.twin_model import Kept, Trace, forward

WORKSPACE = 160
EVERYTHING = Needs(window=32, column_sums=True, moments=frozenset({0, 4}))  # one prefill serves every policy below


class Policy(NamedTuple):
    """A press and its twin; `make` and `naive` take the same fields."""

    make: Callable[..., Press]
    naive: Callable[..., twin.Result]
    fields: dict[str, Any]

    def press(self, **more: Any) -> Any:
        return self.make(**self.fields, **more)

    def twin(self, trace: Trace, budget: int, **more: Any) -> twin.Result:
        return self.naive(trace, budget, **self.fields, **more)

    def lookahead(self) -> bool:
        return hasattr(self.press(), "rounds")


stage1_only = partial(EchoKV, refresh_at=())
iterative_only = partial(EchoKV, bootstrap="window", bootstrap_pooling="max")
# The table's policies. Workspaces are small, so that they evict from prompts of a test's length.
POLICIES = {
    "streaming_llm": Policy(StreamingLLM, twin.streaming_llm, {}),
    "h2o_all": Policy(H2O, twin.h2o, {"queries": "all"}),
    "h2o_window": Policy(H2O, twin.h2o, {"queries": "window"}),
    "snapkv": Policy(SnapKV, twin.snapkv, {}),
    "pyramidkv": Policy(PyramidKV, twin.pyramidkv, {}),
    "laq": Policy(LAQ, twin.laq, {}),
    "echokv": Policy(EchoKV, twin.echokv, {"workspace": WORKSPACE}),
    "stage1_only": Policy(stage1_only, twin.stage1_only, {"workspace": WORKSPACE}),
    "iterative_only": Policy(iterative_only, twin.iterative_only, {"workspace": WORKSPACE}),
}
# Their switches, each away from its default.
VARIANTS = {
    "sinks_0": Policy(StreamingLLM, twin.streaming_llm, {"n_sink": 0}),
    "h2o_all_window_1": Policy(H2O, twin.h2o, {"queries": "all", "window": 1}),
    "snapkv_unpooled": Policy(SnapKV, twin.snapkv, {"pooling": "none", "window": 1}),
    "snapkv_average": Policy(SnapKV, twin.snapkv, {"pooling": "avg", "kernel": 5}),
    "pyramidkv_window_32": Policy(PyramidKV, twin.pyramidkv, {"window": 32, "beta": 5, "pooling": "avg"}),
    "laq_workspace": Policy(LAQ, twin.laq, {"workspace": WORKSPACE, "steps": 5}),
    "laq_unmasked": Policy(LAQ, twin.laq, {"mask": "none"}),
    "laq_plus": Policy(LAQ, twin.laq, {"stage2_window": 8}),
    "laq_plus_unmasked": Policy(LAQ, twin.laq, {"stage2_window": 8, "mask": "none", "pooling": "avg"}),
    "echokv_pooled": Policy(EchoKV, twin.echokv, {"workspace": WORKSPACE, "pooling": "max"}),
    "echokv_average": Policy(EchoKV, twin.echokv, {"workspace": 120, "pooling": "avg", "kernel": 5}),
    "echokv_anchors": Policy(EchoKV, twin.echokv, {"workspace": WORKSPACE, "anchors": 3}),
    "echokv_window": Policy(EchoKV, twin.echokv, {"workspace": WORKSPACE, "stage2_window": 8}),
    "echokv_small": Policy(EchoKV, twin.echokv, {"workspace": 40}),  # less than the budget
    "echokv_two_steps": Policy(EchoKV, twin.echokv, {"workspace": WORKSPACE, "steps": 2}),
    "echokv_seven_steps": Policy(EchoKV, twin.echokv, {"workspace": WORKSPACE, "steps": 7}),
    "echokv_refreshes": Policy(EchoKV, twin.echokv, {"workspace": WORKSPACE, "refresh_at": (2, 5)}),
}
ALL = POLICIES | VARIANTS


@cache
def trace(name: str, length: int) -> Trace:
    """The twin's forward over the standard prompt."""
    return forward(tiny(name), prompt(length))


@cache
def shared_prefill(name: str, length: int) -> Prefill:
    """The library's prefill of the standard prompt."""
    return prefill(tiny(name), torch.tensor(prompt(length)), EVERYTHING)


def as_lists(selection: Selection) -> Kept:
    return [[head.tolist() for head in layer] for layer in selection.positions()]


def close(mine: Tensor, other: Any, tolerance: float = 1e-9) -> None:
    """Assert equality up to rounding."""
    torch.testing.assert_close(mine, torch.as_tensor(other, dtype=mine.dtype), rtol=tolerance, atol=tolerance)


def compare(press: Any, p: Prefill, budget: int, naive: twin.Result) -> None:
    """Assert that a press scores and selects as its twin, and selects what its own scores say."""
    selection = press.select(p, budget)
    assert as_lists(selection) == naive.kept
    if p.length <= budget or type(press).score is Press.score:  # which has no scores
        return
    scores = press.scores(p, budget)
    for mine, other in zip(scores, naive.scores, strict=bool(naive.scores)):
        close(mine, other)
    kept = twin.keep([layer.tolist() for layer in scores], press.layer_budgets(budget, p))
    assert as_lists(selection) == kept
