"""Every tensor lies where the model does: the whole library on a device that refuses to be mixed with the CPU.

Also with a model that is spread over both, as `device_map=auto` spreads one over GPUs.
"""

from functools import cache
from typing import Any

import pytest
import torch
from accelerate.hooks import attach_align_device_hook_on_blocks

from baselines.full import FullKV
from echokv import Prefill, Selection, Session, Stretch, advance, decode_rows, prefill
from echokv.controls import OracleRefresh, RandomRefresh
from echokv.selection import cut
from eval.analysis.outcomes import fidelity, true_queries
from eval.answering.together import choose
from eval.inputs import evidence
from tests.counting import counted
from tests.elsewhere import DEVICE, Elsewhere, elsewhere, moved
from tests.models import build, prompt
from tests.policies import ALL, EVERYTHING, POLICIES, as_lists, shared_prefill

LENGTH = 200


SPREAD = pytest.mark.parametrize("spread", [False, True], ids=["there", "spread"])


@cache
def far_prefill(spread: bool = False) -> Prefill:
    """Of a model that lies elsewhere, or all of which does but the embedding and the first layer."""
    model = build("llama")
    there = ["model.layers.1", "model.layers.2", "model.norm", "model.rotary_emb", "lm_head"] if spread else [""]
    with elsewhere():
        for name in there:
            moved(model.get_submodule(name))
        if spread:
            devices = {
                name: DEVICE if name in there else "cpu" for name in ["model.embed_tokens", "model.layers.0", *there]
            }
            attach_align_device_hook_on_blocks(model, {"": "cpu", **devices}, offload=dict.fromkeys(devices, False))
        return prefill(model, torch.tensor(prompt(LENGTH)), EVERYTHING)


def test_the_device_refuses_to_mix() -> None:
    with elsewhere():
        far = torch.ones(3, device=DEVICE) + 1
        assert isinstance(far, Elsewhere)
        assert (far * 2).tolist() == [4, 4, 4]
        assert not isinstance(far.cpu(), Elsewhere)
        with pytest.raises(RuntimeError, match="expected all tensors to be on the same device"):
            far + torch.ones(3)
        with pytest.raises(RuntimeError, match="expected all tensors to be on the same device"):
            torch.ones(3)[far.long()]
        assert far[torch.tensor([0])].tolist() == [2]


def test_a_prefill_leaves_everything_there() -> None:
    p = far_prefill()
    assert p.sums is not None
    assert all(isinstance(part, Elsewhere) for part in [*p.keys, *p.values, *p.queries, *p.sums, p.logits])


def test_a_spread_prefill_leaves_each_layers_part_where_the_layer_is() -> None:
    p = far_prefill(spread=True)
    assert p.sums is not None
    for parts in (p.keys, p.values, p.queries, p.sums):
        assert [isinstance(part, Elsewhere) for part in parts] == [False, True, True]


@SPREAD
@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
@pytest.mark.parametrize("policy", ALL)
def test_policies_choose_as_on_a_cpu(policy: str, granularity: str, spread: bool) -> None:
    press = ALL[policy].press(granularity=granularity)
    with elsewhere():
        far = press.select(far_prefill(spread), 64)
    assert as_lists(far) == as_lists(press.select(shared_prefill("llama", LENGTH), 64))


@SPREAD
def test_rows_decode_as_on_a_cpu(spread: bool) -> None:
    """Rows of every form, that leave one after the other, past the buffers' first size."""

    def chosen(p: Prefill) -> list[Selection]:
        ranked = [torch.rand(p.groups, LENGTH, dtype=torch.float64).to(keys.device) for keys in p.keys]
        whole = cut(ranked, [[[LENGTH] * p.groups] * p.layers])[0]  # everything, chosen
        presses = [policy.press() for policy in ALL.values()]
        return [FullKV().select(p, None), whole, *(press.select(p, 40 + row) for row, press in enumerate(presses))]

    def answered(p: Prefill) -> Any:
        sessions = [Session(p, selection, record=row % 2 == 0) for row, selection in enumerate(chosen(p))]
        advance(*(Stretch(session, 3) for session in sessions))
        return decode_rows(sessions, [50 - row for row in range(len(sessions))])

    with elsewhere():
        far = answered(far_prefill(spread))
    assert far == answered(shared_prefill("llama", LENGTH))


@SPREAD
def test_selections_side_by_side_and_measurements_of_them(spread: bool) -> None:
    presses = [*(ALL[name].press() for name in ("laq", "echokv", "stage1_only")), RandomRefresh(), OracleRefresh()]

    def measured(p: Prefill) -> Any:
        found = choose([(p, press, [40, 64]) for press in presses])
        selections = [one for choice in found for one in choice.selections]
        true = true_queries(p, 8)
        kept = [evidence.retained(one, (3, 50, 51, 120)) for one in selections]
        return kept, [fidelity(one, true, p) for one in selections]

    with elsewhere():
        far = measured(far_prefill(spread))
    for mine, other in zip(far, measured(shared_prefill("llama", LENGTH)), strict=True):
        assert mine == pytest.approx(other)


@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
@pytest.mark.parametrize("policy", ["streaming_llm", "h2o_all", "h2o_window", "snapkv", "pyramidkv"])
def test_a_selection_of_several_budgets_waits_once(
    policy: str, granularity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many the layers: for the count of NaN and ties. H2O "all" has its sums from the prefill."""
    press = POLICIES[policy].press(granularity=granularity)
    with elsewhere():
        p = far_prefill()
        with counted(monkeypatch) as count:
            made = press.select_all(p, [40, 64, 96])
            assert count.waits.total() == (policy != "streaming_llm"), count.waits
            int(made[0].indices[0].to("cpu")[0, 0])
    assert count.waits.total() == (policy != "streaming_llm") + 1  # what it would count
