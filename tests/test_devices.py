"""Every tensor lies where the model does: the whole library on a device that refuses to be mixed with the CPU."""

from functools import cache
from typing import Any

import pytest
import torch

from baselines.full import FullKV
from echokv import Prefill, Selection, decode_rows, prefill
from echokv.controls import OracleRefresh, RandomRefresh
from echokv.session import Stretch, advance
from eval.analysis import evidence
from eval.analysis.outcomes import fidelity, true_queries
from eval.together import choose
from tests.elsewhere import DEVICE, Elsewhere, elsewhere, moved
from tests.models import build, prompt
from tests.policies import ALL, EVERYTHING, as_lists, shared_prefill

LENGTH = 200


@cache
def far_prefill() -> Prefill:
    with elsewhere():
        return prefill(moved(build("llama")), torch.tensor(prompt(LENGTH)), EVERYTHING)


def test_the_device_refuses_to_mix() -> None:
    with elsewhere():
        far = torch.ones(3, device=DEVICE) + 1
        assert isinstance(far, Elsewhere)
        assert (far * 2).tolist() == [4, 4, 4]
        assert not isinstance(far.cpu(), Elsewhere)
        with pytest.raises(RuntimeError, match="expected all tensors to be on the same device"):
            far + torch.ones(3)


def test_a_prefill_leaves_everything_there() -> None:
    p = far_prefill()
    assert p.sums is not None
    assert all(isinstance(part, Elsewhere) for part in [*p.keys, *p.values, *p.queries, *p.sums, p.logits])


@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
@pytest.mark.parametrize("policy", ALL)
def test_policies_choose_as_on_a_cpu(policy: str, granularity: str) -> None:
    press = ALL[policy].press(granularity=granularity)
    with elsewhere():
        far = press.select(far_prefill(), 64)
    assert as_lists(far) == as_lists(press.select(shared_prefill("llama", LENGTH), 64))


def test_rows_decode_as_on_a_cpu() -> None:
    """Rows of every form, that leave one after the other, past the buffers' first size."""

    def chosen(p: Prefill) -> list[Selection]:
        ranked = [torch.rand(p.groups, LENGTH, dtype=torch.float64).to(p.logits.device) for _ in p.keys]
        whole = FullKV().cut(ranked, [LENGTH] * p.layers, LENGTH)  # everything, chosen
        presses = [policy.press() for policy in ALL.values()]
        return [FullKV().select(p, None), whole, *(press.select(p, 40 + row) for row, press in enumerate(presses))]

    def answered(p: Prefill) -> Any:
        sessions = [p.session(selection, record=row % 2 == 0) for row, selection in enumerate(chosen(p))]
        advance([Stretch(session, 3) for session in sessions])
        return decode_rows(sessions, [50 - row for row in range(len(sessions))])

    with elsewhere():
        far = answered(far_prefill())
    assert far == answered(shared_prefill("llama", LENGTH))


def test_selections_side_by_side_and_measurements_of_them() -> None:
    presses = [*(ALL[name].press() for name in ("laq", "echokv", "stage1_only")), RandomRefresh(), OracleRefresh()]

    def measured(p: Prefill) -> Any:
        found = choose([(p, press, [40, 64]) for press in presses])
        selections = [one for choice in found for one in choice.selections]
        true = true_queries(p, 8)
        kept = [evidence.retained(one, (3, 50, 51, 120)) for one in selections]
        return kept, [fidelity(one, true, p) for one in selections]

    with elsewhere():
        far = measured(far_prefill())
    for mine, other in zip(far, measured(shared_prefill("llama", LENGTH)), strict=True):
        assert mine == pytest.approx(other)
