"""The kernels of decode attention over unequal heads: interpreted on a CPU, compiled for GPUs that are absent.

Run as a program in a process of its own, with TRITON_INTERPRET=1, this file computes the interpreted results.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from baselines.full import FullKV
from baselines.snapkv import SnapKV
from echokv import EchoKV, Needs, Session, Stretch, advance, blocks, decode_rows, prefill
from tests.counting import cuda
from tests.models import build, prompt
from tests.test_kernels import NO_TRITON, ROOT, SHARED_MEMORY, compiled, stack
from tests.test_launches import of_32, selection_of_18, step_of_19

__all__ = ["cuda"]

SPAN = 24  # of the interpreted cases: short pieces, so that units have several


@dataclass(frozen=True)
class Case:
    """heads, groups: H and G. units: of each row, whether a unit is a query head, and what each unit keeps."""

    heads: int
    groups: int
    dim: int
    rows: tuple[tuple[bool, tuple[int, ...]], ...]
    columns: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    sharp: float = 1.0

    @property
    def scaling(self) -> float:
        return self.sharp * self.dim**-0.5

    def tensors(self) -> dict[str, Any]:
        seed = torch.Generator().manual_seed(self.dim)

        def drawn(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=seed).to(self.dtype)

        count, capacity = len(self.rows), max(self.columns) + 2
        parts = {name: drawn(count, self.groups, self.dim) for name in ("key", "value")}
        tails = {name: drawn(count, self.groups, capacity, self.dim) for name in ("tail_keys", "tail_values")}
        kept = [[(drawn(n, self.dim), drawn(n, self.dim)) for n in sizes] for _, sizes in self.rows]
        return {"query": drawn(count, self.heads, self.dim), **parts, **tails, "kept": kept}


FORMS = (
    (False, (70, 0)),  # KV heads, one of which keeps nothing of the prompt
    (True, (5, 24, 25, 1, 0, 48, 9, 100)),
    (False, (1, 200)),
)
CASES = [
    Case(8, 2, 16, FORMS, (0, 7, 33)),
    Case(8, 2, 80, FORMS, (3, 0, 70), torch.float16),
    Case(4, 4, 64, ((False, (3, 300, 0, 64)),), (64,)),
    Case(8, 2, 16, FORMS, (0, 7, 33), sharp=40),  # logits so large that 2 ** logit overflows without the maximum
]


def twin(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """One query after the other, in float64; and the tails with the new token in them."""
    given = case.tensors()
    out = torch.zeros(len(case.rows), case.heads, case.dim, dtype=torch.float64)
    for row, (by_query, _) in enumerate(case.rows):
        at = case.columns[row]
        for name, tail in (("key", "tail_keys"), ("value", "tail_values")):
            given[tail][row, :, at] = given[name][row]
        for head in range(case.heads):
            group = head // (case.heads // case.groups)
            keys, values = given["kept"][row][head if by_query else group]
            keys = torch.cat([keys, given["tail_keys"][row, group, : at + 1]]).double()
            values = torch.cat([values, given["tail_values"][row, group, : at + 1]]).double()
            weights = (keys @ given["query"][row, head].double() * case.scaling).softmax(0)
            out[row, head] = weights @ values
    return out, given["tail_keys"], given["tail_values"]


def attended(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    from echokv.ragged import Unit, opened

    given, units = case.tensors(), []
    for row, (by_query, _) in enumerate(case.rows):
        count = 1 if by_query else case.heads // case.groups
        units += [Unit(row, place * count, count, *kept) for place, kept in enumerate(given["kept"][row])]
    (layer,) = opened([units], case.heads, given["tail_keys"][None], given["tail_values"][None])
    columns = torch.tensor(case.columns)
    out = layer.attend(given["query"], given["key"], given["value"], case.scaling, columns)
    return out, given["tail_keys"], given["tail_values"]


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    pytest.importorskip("triton", reason=NO_TRITON)
    file = tmp_path_factory.mktemp("interpreted") / "attended.pt"
    command = [sys.executable, "-m", "tests.test_ragged_kernel", str(file)]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip([*CASES, "rows"], torch.load(file), strict=True))


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_interpreted_attention_agrees_with_the_twin(case: Case, interpreted: dict[Any, Any]) -> None:
    out, *tails = interpreted[case]
    exact, *filled = twin(case)
    assert out.dtype == case.dtype
    # Float16 rounds each weight and the result to 11 bits; float32's logits are rounded by their own size.
    tolerance = 4e-3 if case.dtype == torch.float16 else 5e-6 * case.sharp
    torch.testing.assert_close(out.double(), exact, rtol=tolerance, atol=tolerance)
    assert all(torch.equal(one, other) for one, other in zip(tails, filled, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_compile_and_fit_a_gpu(
    capability: int, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(32, 8, 128, ((False, (5,) * 8), (True, (3,) * 32)), (4, 2), dtype)
    made = compiled(capability, tmp_path, monkeypatch, lambda: attended(case))
    assert len(made) == 2
    for kernel in made:
        assert kernel.metadata.shared <= SHARED_MEMORY
        assert stack(kernel, tmp_path) == 0  # no register is spilled to memory
    assert "tf32" not in made[0].asm["ptx"]
    assert bool(re.search(r"mma\S*f32\.b?f16", made[0].asm["ptx"])) == (dtype != torch.float32)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_on_a_gpu(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason=NO_TRITON)
    drawn = Case.tensors

    def on_gpu(self: Case) -> dict[str, Any]:
        given = drawn(self)
        kept = [[(keys.cuda(), values.cuda()) for keys, values in row] for row in given.pop("kept")]
        return {**{name: part.cuda() for name, part in given.items()}, "kept": kept}

    exact, *_ = twin(case)
    monkeypatch.setattr(Case, "tensors", on_gpu)
    out, *_ = attended(case)
    tolerance = 4e-3 if case.dtype == torch.float16 else 1e-4 * case.sharp
    torch.testing.assert_close(out.cpu().double(), exact, rtol=tolerance, atol=tolerance)


def decoded() -> list[Any]:
    """Rows of every form that leave one by one, past the buffers' first size, twice over."""
    p = prefill(build("llama").float(), torch.tensor(prompt(60)), Needs(window=32))
    presses = [SnapKV(granularity="query_head", window=8), EchoKV(workspace=30, steps=2), SnapKV(window=4)]
    some = [FullKV().select(p), *(press.select(p, 20 + place) for place, press in enumerate(presses))]
    sessions = [Session(p, one) for one in some]
    found: list[Any] = [decode_rows(sessions, [7, 3, 5, 2])]
    advance(*(Stretch(session, 2) for session in sessions))
    found += [decode_rows(sessions, 2), [session.tail_keys + session.tail_values for session in sessions]]
    return found


def test_rows_on_the_kernels_equal_rows_in_blocks(interpreted: dict[Any, Any]) -> None:
    plain, ragged = interpreted["rows"]
    assert ragged[:2] == plain[:2]
    for one, other in zip(ragged[2], plain[2], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


class NotRun:
    """A kernel that leaves its last tensor zero, which is one launch too."""

    def __getitem__(self, grid: tuple[int]) -> Any:
        return lambda *given, **settings: [one for one in given if isinstance(one, Tensor)][-1].zero_()


def test_launches_of_a_step_on_the_kernels(cuda: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """19 rows of Table 3 and the selection of 18 cells, 32 layers. What the kernels would compute is left out."""
    pytest.importorskip("triton", reason=NO_TRITON)
    from echokv import ragged

    monkeypatch.setattr(blocks, "_takes_units", lambda sessions: True)
    for name in ("_attend", "_join"):
        monkeypatch.setattr(ragged, name, NotRun())
    launches, waits = of_32(monkeypatch, step_of_19)
    assert waits == 0
    assert launches <= 1_400
    launches, waits = of_32(monkeypatch, selection_of_18)
    assert waits <= 18
    assert launches <= 12_000


if __name__ == "__main__":
    from echokv import decoding, ragged

    ragged.SPAN, decoding.ROOM = SPAN, 4
    plain = decoded()
    blocks._takes_units = lambda sessions: True  # type: ignore[assignment]
    results = {**dict(zip(CASES, map(attended, CASES), strict=True)), "rows": (plain, decoded())}
    torch.save([results[case] for case in [*CASES, "rows"]], sys.argv[1])
