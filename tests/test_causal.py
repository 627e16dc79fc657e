"""The prefill's attention: the kernel that is taken is the one that is named, and every one gives the same."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from echokv import Needs, capturing, causal, prefill
from echokv.causal import causal_attention, normalized_attention
from tests.counting import cuda
from tests.elsewhere import elsewhere, moved
from tests.models import build, prompt
from tests.policies import EVERYTHING, close, shared_prefill

__all__ = ["cuda"]
HEADS, GROUPS, DIM = 6, 2, 8


def inputs(length: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(length)
    query, key, value = (
        torch.randn(1, heads, length, DIM, dtype=torch.float64, generator=generator)
        for heads in (HEADS, GROUPS, GROUPS)
    )
    return query, key, value


def twin(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    """One query after the other."""
    out = torch.zeros(1, query.shape[2], HEADS, DIM, dtype=torch.float64)
    for head in range(HEADS):
        group = head // (HEADS // GROUPS)
        for last in range(query.shape[2]):
            logits = key[0, group, : last + 1] @ query[0, head, last] * scaling
            out[0, last, head] = logits.softmax(0) @ value[0, group, : last + 1]
    return out


class OnGpu(Tensor):
    """A CPU's tensor that says it lies on a GPU."""

    is_cuda = True


@pytest.mark.parametrize("length", [1, 2, 37, 700])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_with_normalizers_is_that_without(length: int, dtype: torch.dtype) -> None:
    parts = [part.to(dtype) for part in inputs(length)]
    found, normalizers = normalized_attention(*parts, 0.3)
    assert torch.equal(found, causal_attention(*parts, 0.3))
    assert normalizers is not None
    assert normalizers.dtype == dtype
    query, key = parts[0][0].double(), parts[1][0].double()
    for head in range(HEADS):
        for last in range(0, length, 9):
            logits = key[head // (HEADS // GROUPS), : last + 1] @ query[head, last] * 0.3
            close(normalizers[head, last].double(), logits.exp().sum().log(), 1e-5)


@pytest.mark.parametrize(("flash", "dim"), [(True, DIM), (False, DIM), (True, 6)])
def test_on_a_gpu_flash_attention_hands_out_its_normalizers(
    flash: bool, dim: int, cuda: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for the kernel, which takes keys of fewer heads as they are."""
    monkeypatch.setattr(causal, "can_use_flash_attention", lambda params: flash)
    monkeypatch.setattr(causal, "can_use_efficient_attention", lambda params: False)
    parts = [part[..., :dim] for part in inputs(37)]
    on_cpu, normalizers = normalized_attention(*parts, 0.3)
    assert normalizers is not None

    def kernel(query: Tensor, key: Tensor, value: Tensor, *rest: Any, scale: float) -> tuple[Tensor, ...]:
        assert (key.shape[1], rest) == (GROUPS, (0.0, True, False))
        return on_cpu.transpose(1, 2), normalizers[None], *7 * [torch.empty(0)]

    monkeypatch.setattr(torch.ops.aten, "_scaled_dot_product_flash_attention", kernel)
    found, handed = normalized_attention(*(part.as_subclass(OnGpu) for part in parts), 0.3)
    close(found.as_subclass(Tensor), on_cpu)
    taken = flash and dim == DIM
    assert cuda == ([] if taken else ["FLASH_ATTENTION" if flash else "MATH"])
    assert (handed is None) != taken
    if handed is not None:
        assert torch.equal(handed, normalizers)


def test_the_package_hands_out_its_normalizers(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = inputs(37)
    expected = normalized_attention(*parts, 0.3)

    def stand_in(*rows: Tensor, softmax_scale: float, causal: bool, **more: Any) -> Any:
        assert causal
        out, normalizers = normalized_attention(*(part.transpose(1, 2) for part in rows), softmax_scale)
        assert normalizers is not None
        return (out, normalizers[None], None) if more.get("return_attn_probs") else out

    monkeypatch.setitem(sys.modules, "flash_attn", SimpleNamespace(flash_attn_func=stand_in))
    assert torch.equal(causal_attention(*parts, 0.3, "flash_attention_2"), expected[0])
    for found, exact in zip(normalized_attention(*parts, 0.3, "flash_attention_2"), expected, strict=True):
        assert found is not None
        assert exact is not None
        assert torch.equal(found, exact)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_kernels_that_hand_out_no_normalizers_are_taken_as_they_are(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dtype == torch.float64:
        monkeypatch.setattr(torch, "_fused_sdp_choice", lambda *_, **__: SDPBackend.MATH.value)
    parts = [part.to(dtype) for part in inputs(9)]
    found, normalizers = normalized_attention(*parts, 0.3)
    assert torch.equal(found, causal_attention(*parts, 0.3))
    assert normalizers is None


def test_column_sums_take_the_normalizers_of_the_prefills_own_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = build("llama"), torch.tensor(prompt(40))
    handed: list[Tensor] = []
    ours = capturing.column_sums

    def noted(*parts: Any, normalizers: Tensor) -> Tensor:
        handed.append(normalizers)
        return ours(*parts, normalizers=normalizers)

    monkeypatch.setattr(capturing, "column_sums", noted)
    one_pass = prefill(model, ids, Needs(column_sums=True))
    assert all(part is not None for part in handed)
    monkeypatch.setattr(capturing, "column_sums", lambda *parts, normalizers: ours(*parts))
    two_passes = prefill(model, ids, Needs(column_sums=True))
    assert len(handed) == len(one_pass.column_sums()) == one_pass.layers
    for found, expected in zip(one_pass.column_sums(), two_passes.column_sums(), strict=True):
        close(found, expected)


@pytest.mark.parametrize("length", [1, 2, 37])
@pytest.mark.parametrize(
    ("flash", "efficient", "taken"),
    [(True, True, "FLASH_ATTENTION"), (False, True, "EFFICIENT_ATTENTION"), (False, False, "MATH"), (None, None, None)],
)
def test_the_kernel_taken_is_the_first_that_can(
    length: int,
    flash: bool | None,
    efficient: bool,
    taken: str | None,
    cuda: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def can(answer: bool | None) -> Any:
        return lambda params: (asked.append(params), answer)[1]

    monkeypatch.setattr(causal, "can_use_flash_attention", can(flash))
    monkeypatch.setattr(causal, "can_use_efficient_attention", can(efficient))
    parts = inputs(length)
    given = parts if taken is None else tuple(part.as_subclass(OnGpu) for part in parts)
    found = causal_attention(*given, 0.3)
    close(found.as_subclass(Tensor), twin(*parts, 0.3))
    assert cuda == ([taken] if taken else [])
    if taken:
        query, key, *_, is_causal, grouped = asked[0]
        assert (query.shape[1], key.shape[1], is_causal, grouped) == (HEADS, GROUPS, length > 1, True)
    if taken and taken != "FLASH_ATTENTION":  # asked of heads that each have keys of their own
        query, key, value, *_, grouped = asked[1]
        assert (query.shape, key.shape, value.shape, grouped) == (*3 * [(1, HEADS, length, DIM)], False)


def test_the_name_of_a_models_kernel(cuda: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("llama")
    assert causal.kernel(model) == "cpu"
    with elsewhere():
        far = moved(build("llama"))
        assert causal.kernel(far) == "flash"
        monkeypatch.setattr(causal, "can_use_flash_attention", lambda params: False)
        monkeypatch.setattr(causal, "can_use_efficient_attention", lambda params: True)
        assert causal.kernel(far) == "efficient"
        monkeypatch.setattr(causal, "can_use_efficient_attention", lambda params: False)
        assert causal.kernel(far) == "math"
    flashing = SimpleNamespace(config=SimpleNamespace(_attn_implementation="flash_attention_2"))
    assert causal.kernel(flashing) == "flash_attention_2"


@pytest.mark.parametrize("flash", [False, True])
def test_a_prefill_with_and_without_repeated_keys(
    flash: bool, cuda: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(causal, "can_use_flash_attention", lambda params: flash)
    monkeypatch.setattr(causal, "can_use_efficient_attention", lambda params: False)

    def kernel(query: Tensor, key: Tensor, value: Tensor, *_: Any, scale: float) -> tuple[Tensor, ...]:
        """What only a GPU has: torch's kernel, and the log-sum-exp beside it."""
        out = causal_attention(query, key, value, scale).transpose(1, 2)
        logits = query @ key.repeat_interleave(query.shape[1] // key.shape[1], 1).mT * scale
        unseen = torch.ones_like(logits, dtype=torch.bool).triu(1)
        return out, logits.masked_fill(unseen, -torch.inf).logsumexp(-1)

    monkeypatch.setattr(torch.ops.aten, "_scaled_dot_product_flash_attention", kernel)
    with elsewhere():
        far = prefill(moved(build("llama")), torch.tensor(prompt(200)), EVERYTHING)
    near = shared_prefill("llama", 200)
    assert cuda == ["FLASH_ATTENTION" if flash else "MATH"] * 3
    found, expected = ([p.logits, *p.keys, *p.queries, *p.column_sums()] for p in (far, near))
    for one, other in zip(found, expected, strict=True):
        close(one.here, other)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_kernels_of_a_gpu(dtype: torch.dtype) -> None:
    parts = [part.to(dtype) for part in inputs(300)]
    found = causal_attention(*(part.cuda() for part in parts), 0.3).cpu().double()
    exact = twin(*(part.double() for part in parts), 0.3)
    again, normalizers = normalized_attention(*(part.cuda() for part in parts), 0.3)
    assert torch.equal(again.cpu().double(), found)
    assert (normalizers is not None) == (dtype.itemsize == 2)
    if normalizers is not None:
        _, expected = normalized_attention(*(part.double() for part in parts), 0.3)
        torch.testing.assert_close(normalizers.cpu().double(), expected, rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(found, exact, rtol=0.02, atol=0.02 if dtype.itemsize == 2 else 1e-5)
