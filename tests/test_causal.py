"""The prefill's attention: the kernel that is taken is the one that is named, and every one gives the same."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from echokv import Needs, capturing, causal, prefill
from echokv.causal import causal_attention, normalized_attention
from echokv.columns import summed_attention
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


def log_sums(query: Tensor, key: Tensor, scaling: float) -> Tensor:
    """[H, L], the log-sum-exp of what each query sees."""
    logits = query[0] @ key[0].repeat_interleave(query.shape[1] // key.shape[1], dim=0).mT * scaling
    return logits.masked_fill(torch.ones_like(logits, dtype=torch.bool).triu(1), -torch.inf).logsumexp(dim=-1)


@pytest.mark.parametrize("length", [1, 2, 37, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_attention_and_its_column_sums_in_one_pass(
    length: int, dtype: torch.dtype, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a chunk does not divide among the threads, or the last one is shorter than the others."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    parts = inputs(length)
    query, key, _ = parts
    sums = torch.zeros(HEADS, length, dtype=torch.float64)
    for head in range(HEADS):
        for last in range(length):
            logits = key[0, head // (HEADS // GROUPS), : last + 1] @ query[0, head, last] * 0.3
            sums[head, : last + 1] += logits.softmax(0)
    given = [part.to(dtype) for part in parts]
    for chunk in (None, 5):
        out, found = summed_attention(*given, 0.3, chunk)
        assert out.dtype == found.dtype == dtype
        close(out.double(), twin(*parts, 0.3), 1e-5)
        close(found.double(), sums, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_prefill_with_column_sums_is_one_without(dtype: torch.dtype) -> None:
    """To rounding; in half precision, where that would show, bit for bit."""
    model, ids = build("llama").to(dtype), torch.tensor(prompt(40))
    summed, alone = prefill(model, ids, Needs(column_sums=True)), prefill(model, ids)
    for name in ("keys", "values"):
        for found, expected in zip(getattr(summed, name), getattr(alone, name), strict=True):
            close(found, expected, 0.0 if dtype == torch.bfloat16 else 1e-5)
    for layer, found in enumerate(summed.column_sums()):
        assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert found.sum().item() == pytest.approx(summed.heads * summed.length, rel=1e-4), layer


def test_column_sums_cost_what_attention_alone_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is measured in the first layer, at their cost; where the others are quicker by chance, they are free."""
    clock = [0.0]

    def lasting(seconds: float, work: Any) -> Any:
        def timed(*parts: Any) -> Any:
            clock[0] += seconds
            return work(*parts)

        return timed

    monkeypatch.setattr(capturing, "now", lambda _: clock[0])
    model, ids = build("llama"), torch.tensor(prompt(40))
    for alone, together, expected in ((3.0, 5.0, 2.0), (3.0, 1.0, 0.0)):
        monkeypatch.setattr(capturing, "causal_attention", lasting(alone, causal_attention))
        monkeypatch.setattr(capturing, "summed_attention", lasting(together, summed_attention))
        found = prefill(model, ids, Needs(column_sums=True))
        assert found.layers > 1
        assert found.sums_seconds == (alone + found.layers * expected if expected else 0.0)


@pytest.mark.parametrize(("flash", "dim"), [(True, DIM), (False, DIM), (True, 6)])
def test_on_a_gpu_flash_attention_hands_out_its_normalizers(
    flash: bool, dim: int, cuda: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for the kernel, which takes keys of fewer heads as they are."""
    monkeypatch.setattr(causal, "can_use_flash_attention", lambda params: flash)
    monkeypatch.setattr(causal, "can_use_efficient_attention", lambda params: False)
    parts = [part[..., :dim] for part in inputs(37)]
    on_cpu, normalizers = causal_attention(*parts, 0.3), log_sums(*parts[:2], 0.3)

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
    expected = causal_attention(*parts, 0.3), log_sums(*parts[:2], 0.3)

    def stand_in(*rows: Tensor, softmax_scale: float, causal: bool, **more: Any) -> Any:
        assert causal
        query, key, value = (part.transpose(1, 2) for part in rows)
        out = causal_attention(query, key, value, softmax_scale)
        return (out, log_sums(query, key, softmax_scale)[None], None) if more.get("return_attn_probs") else out

    monkeypatch.setitem(sys.modules, "flash_attn", SimpleNamespace(flash_attn_func=stand_in))
    assert torch.equal(causal_attention(*parts, 0.3, "flash_attention_2"), expected[0])
    for found, exact in zip(normalized_attention(*parts, 0.3, "flash_attention_2"), expected, strict=True):
        assert found is not None
        assert torch.equal(found, exact)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_kernels_that_hand_out_no_normalizers_are_taken_as_they_are(dtype: torch.dtype) -> None:
    parts = [part.to(dtype) for part in inputs(9)]
    found, normalizers = normalized_attention(*parts, 0.3)
    assert torch.equal(found, causal_attention(*parts, 0.3))
    assert normalizers is None


def test_column_sums_take_the_normalizers_of_the_prefills_own_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a kernel hands them out: here the stand-in for the package."""
    model, ids = build("llama"), torch.tensor(prompt(40))
    expected = prefill(model, ids, Needs(column_sums=True))
    handed: list[Tensor] = []

    def kernel(query: Tensor, key: Tensor, value: Tensor, scaling: float, _name: str) -> tuple[Tensor, Tensor]:
        return causal_attention(query, key, value, scaling), log_sums(query, key, scaling)

    def noted(queries: Tensor, keys: Tensor, scaling: float, *, normalizers: Tensor) -> Tensor:
        handed.append(normalizers)
        logits = queries @ keys.repeat_interleave(len(queries) // len(keys), dim=0).mT * scaling
        return (logits - normalizers[..., None]).exp().tril().sum(dim=-2)

    monkeypatch.setattr(capturing, "in_one_pass", lambda _: False)
    found = prefill(model, ids, Needs(column_sums=True))  # attention and sums one after the other
    monkeypatch.setattr(capturing, "normalized_attention", kernel)
    monkeypatch.setattr(capturing, "column_sums", noted)
    with_theirs = prefill(model, ids, Needs(column_sums=True))
    assert len(handed) == found.layers
    for parts in zip(found.column_sums(), with_theirs.column_sums(), expected.column_sums(), strict=True):
        close(parts[0], parts[2])
        close(parts[1], parts[2])


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
        expected = log_sums(*(part.double() for part in parts[:2]), 0.3)
        torch.testing.assert_close(normalizers.cpu().double(), expected, rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(found, exact, rtol=0.02, atol=0.02 if dtype.itemsize == 2 else 1e-5)
