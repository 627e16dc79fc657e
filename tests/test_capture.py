"""What recording a CUDA graph forbids, found without a GPU: a step touches neither the host nor its memory."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from baselines.full import FullKV
from echokv import Session
from echokv.rows import Rows
from tests.counting import counted
from tests.elsewhere import DEVICE, elsewhere
from tests.policies import ALL
from tests.test_devices import far_prefill

GRANULARITIES = ("kv_head", "query_head")


def test_a_step_stays_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """With rows of every policy, and again after some have left and the buffers have grown."""
    with elsewhere():
        p = far_prefill()
        some = [
            policy.press(granularity=granularity).select(p, 40 + place)
            for place, policy in enumerate(ALL.values())
            for granularity in GRANULARITIES
        ]
        rows = Rows([Session(p, one, record=True) for one in [FullKV().select(p, None), *some]], 32)
        for _ in range(2):
            rows.step()
            with counted(monkeypatch) as count:
                rows.step()
            assert count.launches.total() > 100
            assert not count.waits
            assert not count.host
            rows.finish([1, 4])
            rows._lengthen()


@pytest.mark.parametrize(
    "forbidden",
    [
        lambda far: int(far.sum()),
        lambda far: far.cpu(),
        lambda far: far.tolist(),
        lambda far: far.copy_(torch.ones(3)),
        lambda far: far[far > 0],
        lambda far: torch.arange(3).to(DEVICE),
        lambda far: torch.tensor([1, 2], device=DEVICE),
    ],
    ids=["item", "cpu", "tolist", "copy", "mask", "to", "tensor"],
)
def test_what_waits_is_found(forbidden: Callable[[Tensor], object], monkeypatch: pytest.MonkeyPatch) -> None:
    with elsewhere():
        far = torch.ones(3, device=DEVICE)
        with counted(monkeypatch) as count:
            forbidden(far)
    assert count.waits


def test_work_on_the_host_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with elsewhere(), counted(monkeypatch) as count:
        torch.arange(4) + 1
    assert count.host.total() == 2
    assert not count.launches
