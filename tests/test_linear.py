"""Linear layers in float32 on a CPU: against float64, and only where they are meant to stand in."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from baselines.snapkv import SnapKV
from echokv import Session, decode_rows, linear, prefill
from tests.models import prompt, tiny

decided = linear.torch_is_quick.__wrapped__  # asked anew each time
ROWS = [(1,), (2,), (1, 1), (4, 1), (1, 5), (19, 1), (2, 33), (1, 300)]


@pytest.fixture(params=[True, False], ids=["few rows by torch", "few rows in pieces"], autouse=True)
def by_torch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """What the processor of the test's machine would decide, both ways."""
    monkeypatch.setattr(linear, "torch_is_quick", lambda: request.param)
    decided: bool = request.param
    return decided


@pytest.fixture
def single(request: pytest.FixtureRequest) -> Any:
    """A tiny model in float32."""
    return deepcopy(tiny(request.param)).float()


@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize(("inner", "features"), [(64, 96), (48, 49), (7, 1), (576, 192)])
@pytest.mark.parametrize("bias", [True, False])
def test_products_are_those_of_float64(rows: tuple[int, ...], inner: int, features: int, bias: bool) -> None:
    torch.manual_seed(0)
    x, weight, added = torch.randn(*rows, inner), torch.randn(features, inner), torch.randn(features)
    exact = x.double() @ weight.double().T + (added.double() if bias else 0)
    for ordered in (None, linear.ordered(weight)):
        found = linear.linear(x, weight, added if bias else None, ordered)
        assert found.is_contiguous()
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-4)


def test_views_are_read_as_they_are() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(64, 6)[:, 3:].T, torch.randn(32, 64)
    for some in (x, x[:1], x.repeat(3, 1)):
        torch.testing.assert_close(linear.linear(some, weight), F.linear(some, weight))


@pytest.mark.filterwarnings("ignore:TF32")  # which the switch says, whatever it is set to
@pytest.mark.parametrize("single", ["llama", "qwen2"], indirect=True)
def test_a_model_computes_with_them_and_is_left_as_it_was(
    single: Any, by_torch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    ours = linear.linear

    def noted(x: Any, **layer: Any) -> Any:
        rows.append(x.numel() // x.shape[-1])
        return ours(x, **layer)

    monkeypatch.setattr(linear, "linear", noted)

    def tokens() -> list[list[int]]:
        p = prefill(single, torch.tensor(prompt(80)), SnapKV(window=8).needs)
        return decode_rows([Session(p, SnapKV(window=8).select(p, budget)) for budget in range(20, 50, 5)], 12)

    with torch.backends.mkldnn.flags(enabled=False):
        expected = tokens()
    assert not rows
    assert tokens() == expected
    # A prompt, its last token for the logits, and six rows a step.
    assert set(rows) == ({1, 6, 80})
    rows.clear()
    single(torch.tensor([[1, 2, 3]]))
    assert not rows


def taken(model: Any) -> list[str]:
    """The layers that have a forward of their own."""
    return [name for name, module in model.named_modules() if "forward" in vars(module)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_are_left_to_torch(dtype: torch.dtype) -> None:
    model = deepcopy(tiny("llama")).to(dtype)
    with linear.quick(model, 8):
        assert not taken(model)
    model.float().lm_head.to(dtype)
    with linear.quick(model, 8):
        assert taken(model)
        assert "lm_head" not in taken(model)


@pytest.mark.parametrize(("rows", "ours"), [(1, False), (4, False), (5, True), (65, True)])
def test_passes_whose_rows_would_all_be_left_to_torch_are(rows: int, ours: bool, by_torch: bool) -> None:
    model = deepcopy(tiny("llama")).float()
    with linear.quick(model, rows):
        layers = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
        assert taken(model) == (layers if ours or not by_torch else [])
    assert not taken(model)


def test_layers_are_put_back_after_an_error_and_those_of_others_left_alone() -> None:
    class Own(torch.nn.Linear):
        """A layer of another library."""

    model = deepcopy(tiny("llama")).float()
    attention = model.model.layers[0].self_attn
    attention.q_proj = Own(attention.q_proj.in_features, attention.q_proj.out_features)
    theirs = attention.k_proj.forward
    attention.k_proj.forward = theirs  # as accelerate does
    during: list[str] = []

    def fail() -> None:
        during.extend(taken(model))
        raise KeyError

    with pytest.raises(KeyError), linear.quick(model, 8):
        fail()
    assert "model.layers.0.self_attn.q_proj" not in during
    assert len(during) > 1
    assert vars(attention.k_proj)["forward"] is theirs
    assert taken(model) == ["model.layers.0.self_attn.k_proj"]


@pytest.mark.filterwarnings("ignore:TF32")
@pytest.mark.parametrize("single", ["llama", "qwen2"], indirect=True)
def test_weights_held_in_an_order_of_their_own_make_the_same_answers(single: Any) -> None:
    def tokens() -> list[list[int]]:
        p = prefill(single, torch.tensor(prompt(80)), SnapKV(window=8).needs)
        return decode_rows([Session(p, SnapKV(window=8).select(p, budget)) for budget in range(20, 50, 5)], 12)

    expected = tokens()
    linear.hold(single)
    held = {name: vars(single.get_submodule(name))["forward"] for name in taken(single)}
    layers = [name for name, module in single.named_modules() if isinstance(module, torch.nn.Linear)]
    assert [name for name in held if not name.endswith(".mlp")] == layers
    assert all(held[name].keywords["ordered"].is_mkldnn for name in layers)
    assert tokens() == expected
    assert {name: vars(single.get_submodule(name))["forward"] for name in taken(single)} == held


@pytest.mark.parametrize("single", ["llama", "qwen2"], indirect=True)
def test_a_held_models_mlps_take_a_prompt_in_pieces(
    single: Any, by_torch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which all but the last have as many rows as oneDNN has code for."""
    monkeypatch.setattr(linear, "PIECE", 70)
    monkeypatch.setattr(linear, "MANY", 8)
    expected = prefill(single, torch.tensor(prompt(200)))
    linear.hold(single)
    rows: list[int] = []
    by_onednn = torch.ops.mkldnn._linear_pointwise

    def noted(x: Any, *given: Any) -> Any:
        rows.append(x.numel() // x.shape[-1])
        return by_onednn(x, *given)

    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", noted)
    found = prefill(single, torch.tensor(prompt(200)))
    assert rows == ([] if by_torch else [70] * 2 * 3 * single.config.num_hidden_layers)
    for mine, other in zip(
        [*found.keys, *found.values, found.logits], [*expected.keys, *expected.values, expected.logits], strict=True
    ):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 70, 71, 200])
def test_pieces_are_the_whole(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "PIECE", 70)
    sizes: list[int] = []

    def twice(x: torch.Tensor) -> torch.Tensor:
        sizes.append(x.shape[1])
        return 2 * x

    x = torch.randn(2, rows, 5)
    assert torch.equal(linear.in_pieces(twice, x), 2 * x)
    assert sum(sizes) == rows
    assert max(sizes) <= 70


def test_large_models_weights_are_not_held_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    model = deepcopy(tiny("llama")).float()
    size = sum(module.weight.nbytes for module in model.modules() if isinstance(module, torch.nn.Linear))
    monkeypatch.setattr(linear, "HELD", size - 1)
    linear.hold(model)
    assert not taken(model)
    monkeypatch.setattr(linear, "HELD", size)
    linear.hold(model.double())
    assert not taken(model)
    linear.hold(model.float())
    assert taken(model)


@pytest.mark.parametrize(("maker", "quick"), [("GenuineIntel", True), ("AuthenticAMD", False), ("", False)])
def test_the_maker_of_the_processor_decides(
    maker: str, quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "cpuinfo"
    told.write_text(f"vendor_id\t: {maker}\n")
    monkeypatch.setattr(linear, "Path", lambda _: told)
    assert decided() == quick
    told.unlink()  # as on other systems
    monkeypatch.setattr(linear.platform, "processor", lambda: f"Intel64 Family 6, {maker}")
    assert decided() == quick
