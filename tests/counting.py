"""What a GPU would be given, counted without one: on the device of tests/elsewhere.py, which may say that it is CUDA.

A launch is an operation that reads or writes memory of the device; views and allocations are none. A wait is what
holds the host until the device has caught up: a value or a shape that is asked for, a copy to the host, and a copy to
the device that is not told to go on meanwhile.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from echokv import causal, scores
from tests import elsewhere as device
from tests.elsewhere import DEVICE, Elsewhere

ASKS = {
    "aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::is_nonzero", "aten::masked_select",
    "aten::_unique2", "aten::repeat_interleave.Tensor", "aten::item",
}  # fmt: skip
NO_WORK = {
    "aten::empty.memory_format",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::lift_fresh",
}
NO_WORK |= {"aten::_unsafe_view", "aten::detach", "aten::_reshape_alias", "aten::alias", "aten::new_empty_strided"}


@dataclass
class Count:
    """Operations by name; `host` are those on the CPU's own tensors."""

    launches: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)
    host: Counter[str] = field(default_factory=Counter)


@contextmanager
def counted(patch: pytest.MonkeyPatch) -> Iterator[Count]:
    """Count what is run inside `elsewhere()`."""
    count, run, tolist = Count(), device._run, Elsewhere.tolist
    literals = device._Literals.__torch_function__

    def watched(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        _note(count, func, args, kwargs)
        return run(func, args, kwargs)

    def asked(self: Elsewhere) -> Any:
        count.waits["tolist"] += 1
        return tolist(self)

    def literal(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.tensor and torch.device((kwargs or {}).get("device") or "cpu").type == DEVICE:
            count.waits["torch.tensor"] += 1
        return literals(self, func, types, args, kwargs)

    with patch.context() as inner:
        inner.setattr(device, "_run", watched)
        inner.setattr(Elsewhere, "tolist", asked)
        inner.setattr(device._Literals, "__torch_function__", literal)
        yield count


def _note(count: Count, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
    name, tensors = func.name(), [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
    far = any(isinstance(one, Elsewhere) for one in tensors)
    near = any(not isinstance(one, Elsewhere) for one in tensors)
    target = kwargs.get("device")
    goes = None if target is None else torch.device(target).type == DEVICE
    crosses = (far and near) or (bool(tensors) and goes is not None and goes != far)
    if crosses:
        leaves = goes is False or (goes is None and near and not isinstance(args[0], Elsewhere))
        swift = kwargs.get("non_blocking") or (len(args) > 2 and args[2] is True)
        (count.launches if swift and not leaves else count.waits)[name] += 1
    elif far or goes:
        masked = name.startswith("aten::index.") and any(one.dtype == torch.bool for one in tensors[1:])
        if name in ASKS or masked:
            count.waits[name] += 1
        elif not func.is_view and name not in NO_WORK:
            count.launches[name] += 1
    elif not func.is_view and name not in NO_WORK:
        count.host[name] += 1


def _flash(
    query: Tensor, key: Tensor, value: Tensor, dropout: float, causal: bool = False, *, scale: float
) -> tuple[Tensor, Tensor]:
    """What torch's flash attention hands out, grouped heads included: attention and each query's log-sum-exp."""
    assert dropout == 0
    kind = scores.accumulator(query.dtype)
    key, value = (part.repeat_interleave(query.shape[1] // key.shape[1], 1).to(kind) for part in (key, value))
    logits = query.to(kind) @ key.mT * scale
    if causal:
        logits.masked_fill_(torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    return (logits.softmax(-1) @ value).to(query.dtype), logits.logsumexp(-1)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let tensors elsewhere say that they lie on CUDA, with flash attention and without Triton.

    Gives the names of the attention kernels as they are taken.
    """
    run, taken = device._run, []

    def emulated(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if func.name() == "aten::_scaled_dot_product_flash_attention":
            made = map(Elsewhere, _flash(*(part.here for part in args[:3]), *args[3:], **kwargs))
            none = Elsewhere(torch.empty(0))
            return *made, none, none, 0, 0, none, none, none
        if func.name() != "aten::bmm.dtype":
            return run(func, args, kwargs)
        one, other, dtype = args  # what cuBLAS does: halves are multiplied exactly and added up in float32
        assert one.dtype == other.dtype
        assert one.element_size() == 2
        assert isinstance(one, Elsewhere)
        assert isinstance(other, Elsewhere)
        return Elsewhere(torch.bmm(one.here.to(dtype), other.here.to(dtype)))

    def chosen(backend: Any) -> Any:
        taken.append(backend.name)
        return nullcontext()

    monkeypatch.setattr(device, "_run", emulated)
    monkeypatch.setattr(Elsewhere, "is_cuda", True, raising=False)
    monkeypatch.setattr(causal, "can_use_flash_attention", lambda params: True)
    monkeypatch.setattr(causal, "SDPAParams", lambda *parts: parts)
    monkeypatch.setattr(causal, "sdpa_kernel", chosen)
    monkeypatch.setattr(scores, "triton_kernels", lambda: None)
    return taken
