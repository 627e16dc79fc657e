"""What a GPU is given in a decode step and in a selection, counted without one, so that what is won stays won.

Counts are of a model of 32 layers, as wide as a test allows. As many layers are worked on together as there would be
at 8,192 tokens, and values are put through as much of the output projection as of one 4,096 wide.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from baselines import critical_snapkv
from baselines.ada import AdaSnapKV
from baselines.cake import CAKE
from baselines.chunkkv import ChunkKV
from baselines.critical_ada_snapkv import CriticalAdaSnapKV
from baselines.critical_snapkv import CriticalSnapKV
from baselines.dapq import DapQ
from baselines.defensivekv import DefensiveKV
from baselines.full import FullKV
from baselines.h2o import H2O
from baselines.keydiff import KeyDiff
from baselines.knorm import Knorm
from baselines.lagkv import LagKV
from baselines.laq import LAQ
from baselines.pyramidkv import PyramidKV
from baselines.snapkv import SnapKV
from baselines.streaming_llm import StreamingLLM
from baselines.tova import TOVA
from echokv import EchoKV, Needs, Prefill, Selection, Session, prefill, scores
from echokv.rows import Rows
from eval.answering.together import choose
from tests.counting import counted, cuda
from tests.elsewhere import elsewhere, moved

__all__ = ["cuda"]
LENGTH, BUDGETS = 180, (40, 64, 100)
QUERY = {"granularity": "query_head", "precision": "legacy"}
TABLE = {  # Table 3's rows as the preset `paper` has them
    "streamingllm": StreamingLLM(granularity="query_head"),
    "h2o": H2O(queries="window", **QUERY),
    "snapkv": SnapKV(**QUERY),
    "pyramidkv": PyramidKV(**QUERY),
    "laq": LAQ(workspace=120, mask="official", **QUERY),
    "echokv": EchoKV(workspace=120, precision="legacy"),
}
RIVALS = {  # of which each has operators of its own
    "cake": CAKE(),
    "lagkv": LagKV(lag=16),
    "tova": TOVA(),
    "knorm": Knorm(),
    "keydiff": KeyDiff(),
    "chunkkv": ChunkKV(),
    "ada_snapkv": AdaSnapKV(),
    "critical_snapkv": CriticalSnapKV(),
    "critical_ada_snapkv": CriticalAdaSnapKV(rule="safeguard"),
    "defensivekv": DefensiveKV(),
    "dapq": DapQ(),
}
WIDTH = 64


@cache
def model(layers: int) -> Any:
    """Mistral's heads, between narrow layers."""
    torch.manual_seed(0)
    config = MistralConfig(
        hidden_size=WIDTH, intermediate_size=96, num_hidden_layers=layers, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, vocab_size=64, sliding_window=None, max_position_embeddings=4096,
    )  # fmt: skip
    return moved(MistralForCausalLM(config).half().eval())


def opened(layers: int) -> Prefill:
    ids = torch.randint(0, 64, (LENGTH,), generator=torch.Generator().manual_seed(1))
    return prefill(model(layers), ids, Needs(window=32), stop_ids=[2], min_new_tokens=1)


def chosen(p: Prefill) -> list[Selection]:
    found = choose([(p, press, BUDGETS) for press in TABLE.values()])
    return [FullKV().select(p, None), *(one for choice in found for one in choice.selections)]


def of_32(patch: pytest.MonkeyPatch, prepare: Callable[[int], Callable[[], Any]]) -> tuple[int, int]:
    """Launches and waits of some work on 32 layers. prepare: makes the work for that many layers, uncounted."""
    with patch.context() as inner, elsewhere():
        inner.setattr(scores, "GPU_LOGITS", scores.GPU_LOGITS * LENGTH // 8192)
        inner.setattr(critical_snapkv, "room", lambda like: scores.room(like) * WIDTH // 4096)
        work = prepare(32)
        with counted(patch) as count:
            work()
    return count.launches.total(), count.waits.total()


def step_of_19(layers: int) -> Callable[[], Any]:
    p = opened(layers)
    rows = Rows([Session(p, one) for one in chosen(p)], 32)
    assert len(rows.sessions) == 19
    rows.step()
    return rows.step


def selection_of_18(layers: int) -> Callable[[], Any]:
    p = opened(layers)
    return lambda: choose([(p, press, BUDGETS) for press in TABLE.values()])


def test_a_step_of_19_rows(cuda: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    launches, waits = of_32(monkeypatch, step_of_19)
    assert set(cuda) == {"FLASH_ATTENTION"}
    assert waits == 0
    assert launches <= 3_010


def test_a_selection_of_18_cells(cuda: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    launches, waits = of_32(monkeypatch, selection_of_18)
    assert launches <= 20_180
    assert waits <= 18  # the bar is 100


@pytest.mark.parametrize(
    ("name", "launches", "waits"),
    [
        ("cake", 145, 2),
        ("lagkv", 188, 1),
        ("tova", 68, 1),
        ("knorm", 52, 1),
        ("keydiff", 84, 1),
        ("chunkkv", 140, 1),
        ("ada_snapkv", 135, 4),
        ("critical_snapkv", 1_126, 1),
        ("critical_ada_snapkv", 1_221, 5),
        ("defensivekv", 1_254, 4),
        ("dapq", 2_264, 2),  # most of them the model's own, which the probe runs through
    ],
)
def test_a_selection_of_a_rival(
    cuda: list[str], monkeypatch: pytest.MonkeyPatch, name: str, launches: int, waits: int
) -> None:
    def selection(layers: int) -> Callable[[], Any]:
        p = opened(layers)
        return lambda: RIVALS[name].select(p, BUDGETS[-1])

    found = of_32(monkeypatch, selection)
    assert found[0] <= launches
    assert found[1] <= waits
