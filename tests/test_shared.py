"""What policies that are at work side by side compute once."""

from typing import Any

import pytest
import torch

from baselines.cake import CAKE
from baselines.critical_ada_snapkv import CriticalAdaSnapKV
from baselines.critical_snapkv import CriticalSnapKV
from baselines.defensivekv import DefensiveKV
from baselines.h2o import H2O
from baselines.laq import LAQ
from baselines.pyramidkv import PyramidKV
from baselines.snapkv import SnapKV
from echokv import Prefill, masses, scores
from eval.answering import together
from eval.answering.together import choose
from tests.counting import cuda
from tests.elsewhere import elsewhere
from tests.policies import as_lists, shared_prefill
from tests.test_launches import BUDGETS, RIVALS, TABLE, opened

__all__ = ["cuda"]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many queries a head each scoring pass over a layer has, in their order."""
    seen = []

    def watched(queries: Any, *given: Any) -> Any:
        seen.append(queries.shape[1])
        return scores.attention_mass(queries, *given)

    monkeypatch.setattr(masses, "attention_mass", watched)
    return seen


def test_presses_with_one_window_share_its_attention(passes: list[int]) -> None:
    p = shared_prefill("llama", 200)
    presses = [SnapKV(), H2O(queries="window"), PyramidKV(window=32, pooling="avg"), CriticalSnapKV(), SnapKV(window=8)]
    found = choose([(p, press, BUDGETS) for press in presses])
    assert passes == [32] * p.layers + [8] * p.layers
    passes.clear()
    for press, choice in zip(presses, found, strict=True):
        alone = press.select_all(p, BUDGETS)  # nothing is left of the work before
        assert [as_lists(one) for one in choice.selections] == [as_lists(one) for one in alone]
    assert passes == [32] * 4 * p.layers + [8] * p.layers


def test_a_precision_is_not_another(passes: list[int]) -> None:
    p = shared_prefill("llama", 200)
    choose([(p, SnapKV(), [64]), (p, SnapKV(precision="legacy"), [64])])
    assert passes == [32] * 2 * p.layers


def test_a_press_computes_its_attention_once_for_all_budgets(
    passes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    p = shared_prefill("llama", 200)
    CriticalAdaSnapKV().select_all(p, BUDGETS)
    assert passes == [32] * p.layers
    looked: list[int] = []

    def watched(prefill: Prefill, some: range, window: int) -> torch.Tensor:
        looked.extend(some)
        return masses.window_attention(prefill, some, window)

    for press in (CAKE(), DefensiveKV()):
        looked.clear()
        monkeypatch.setattr(f"{type(press).__module__}.window_attention", watched)
        press.select_all(p, BUDGETS)
        assert looked == list(range(p.layers))


def test_each_press_is_charged_what_it_shares_once(monkeypatch: pytest.MonkeyPatch) -> None:
    p = shared_prefill("llama", 200)
    clock = [0.0]

    def slow(*given: Any) -> Any:
        clock[0] += 10.0
        return scores.attention_mass(*given)

    class Meter(together.Meter):
        def __exit__(self, *given: Any) -> None:
            super().__exit__(*given)
            self.seconds = clock[0] - self.begun

        def __enter__(self) -> Any:
            self.begun = clock[0]
            return super().__enter__()

    monkeypatch.setattr(masses, "attention_mass", slow)
    monkeypatch.setattr("echokv.shared.now", lambda device: clock[0])
    monkeypatch.setattr(together, "Meter", Meter)
    jobs = [(p, SnapKV(), BUDGETS), (p, CriticalAdaSnapKV(), BUDGETS), (p, LAQ(workspace=40), BUDGETS)]
    first, second, third = (choice.seconds for choice in choose(jobs))
    assert first == second == 10.0 * p.layers
    assert third == 2 * 10.0 * p.layers  # of its bootstrap, and of the queries that it decoded


def test_nothing_is_left_when_a_press_fails() -> None:
    p = shared_prefill("llama", 200)

    def work() -> None:
        with p.shared.held():
            p.share("key", lambda: 1)
            raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        work()
    assert p.share("key", lambda: 2) == 2


def test_layers_scored_together_keep_what_each_keeps(
    cuda: list[str], passes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    with elsewhere():
        p = opened(4)
        for room in (5_000, 400_000, 1 << 26):  # at 32 queries a head, twice: a layer at a time, two, all
            monkeypatch.setattr(scores, "GPU_LOGITS", room)
            passes.clear()
            choices = choose([(p, press, BUDGETS) for press in (TABLE | RIVALS).values()])
            found[passes.count(32)] = [as_lists(one) for choice in choices for one in choice.selections]
    assert list(found) == [8, 4, 2]
    assert found[8] == found[4] == found[2]
