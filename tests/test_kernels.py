"""The Triton kernels of H2O's column sums: interpreted on a CPU, compiled for GPUs that are absent, run on one at hand.

Run as a program in a process of its own, with TRITON_INTERPRET=1 set before Triton is imported, this file computes
the interpreted sums of all cases.
"""

import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from echokv.columns import column_sums

ROOT = Path(__file__).parent.parent
NO_TRITON = "needs Triton, which has no build for this machine"
SHARED_MEMORY = 99 * 1024  # what a program may use on compute capability 8.6 and 8.9, the least of all supported


@dataclass(frozen=True)
class Case:
    heads: int
    groups: int
    length: int
    dim: int
    dtype: torch.dtype = torch.float32
    sharp: float = 1.0  # times 1 / sqrt(D)

    @property
    def scaling(self) -> float:
        return self.sharp * self.dim**-0.5

    @property
    def tolerance(self) -> float:
        """Float32 rounds a logit of size x by about 6e-8 x, and a probability by that part of itself."""
        return 5e-6 * self.sharp

    def inputs(self) -> tuple[Tensor, Tensor]:
        """Queries as a model hands them over, a view of [L, H, D], and keys [G, L, D]."""
        seed = torch.Generator().manual_seed(self.length)
        queries = torch.randn(self.length, self.heads, self.dim, generator=seed).to(self.dtype)
        keys = torch.randn(self.groups, self.length, self.dim, generator=seed).to(self.dtype)
        return queries.transpose(0, 1), keys

    def normalizers(self) -> Tensor:
        """The log-sum-exp of each query's logits, [H, L], as the prefill's attention hands it out."""
        queries, keys = self.inputs()
        shared = self.heads // self.groups
        logits = queries.double() @ keys.double().repeat_interleave(shared, 0).mT * self.scaling
        unseen = torch.ones(self.length, self.length, dtype=torch.bool).triu(1)
        return logits.masked_fill(unseen, -torch.inf).logsumexp(-1).float()

    def __str__(self) -> str:
        sharp = f"-sharp{self.sharp:g}" * (self.sharp != 1)
        return f"{self.heads}-{self.groups}-L{self.length}-D{self.dim}-{self.dtype}{sharp}".replace("torch.", "")


CASES = [
    Case(4, 4, 1, 64),
    Case(4, 2, 17, 80),
    Case(9, 3, 130, 64),
    Case(4, 2, 300, 80),
    Case(4, 4, 130, 16, sharp=30),  # logits so large that 2 ** logit overflows without the running maximum
    Case(9, 3, 1, 80, torch.bfloat16),
    Case(4, 2, 17, 64, torch.bfloat16),
    Case(4, 4, 130, 128, torch.bfloat16),
    Case(9, 3, 300, 80, torch.bfloat16),
    Case(4, 2, 130, 96, torch.float16),
]


def twin(queries: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """One query after the other, in float64."""
    heads, length, _ = queries.shape
    sums = torch.zeros(heads, length, dtype=torch.float64)
    for head in range(heads):
        own = keys[head // (heads // len(keys))].double()
        for last in range(length):
            logits = own[: last + 1] @ queries[head, last].double() * scaling
            sums[head, : last + 1] += logits.softmax(0)
    return sums


# --- Interpreted --------------------------------------------------------------------------------------------


def interpret(file: str) -> None:
    """Save the interpreted sums of all cases."""
    column_sums(*CASES[0].inputs(), 1.0)
    assert "echokv.kernels" not in sys.modules, "a CPU needs no Triton, which takes a while to import"
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    from echokv import kernels

    dot = InterpreterBuilder.create_dot

    def exact(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        # The interpreter holds bfloat16 as uint16 and multiplies those integers; a GPU multiplies the numbers.
        if a.dtype.scalar == tl.bfloat16:
            a, b = (TensorHandle((x.data.astype("uint32") << 16).view("float32"), tl.float32) for x in (a, b))
        return dot(self, a, b, *rest)

    InterpreterBuilder.create_dot = exact
    alone = [kernels.column_sums(*case.inputs(), case.scaling) for case in CASES]
    handed = [kernels.column_sums(*case.inputs(), case.scaling, case.normalizers()) for case in CASES]
    torch.save([alone, handed], file)


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Case, Tensor]]:
    """The sums with normalizers of the kernels' own, and with those that are handed over."""
    pytest.importorskip("triton", reason=NO_TRITON)
    file = tmp_path_factory.mktemp("interpreted") / "sums.pt"
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "tests.test_kernels", str(file)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [dict(zip(CASES, sums, strict=True)) for sums in torch.load(file)]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("handed", [False, True], ids=["alone", "handed"])
def test_interpreted_kernels_agree_with_the_twin(
    case: Case, handed: bool, interpreted: list[dict[Case, Tensor]]
) -> None:
    sums = interpreted[handed][case]
    assert sums.dtype == torch.float32
    torch.testing.assert_close(sums.double(), twin(*case.inputs(), case.scaling), rtol=case.tolerance, atol=1e-6)
    # Every query distributes one unit.
    units = torch.full([case.heads], float(case.length), dtype=torch.float64)
    torch.testing.assert_close(sums.double().sum(1), units, rtol=1e-5, atol=0)


# --- Compiled and run ---------------------------------------------------------------------------------------


class Absent:
    """What Triton's compiler asks a GPU's driver for."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return self.capability  # Triton keeps what it compiled under this number

    def get_current_stream(self, _device: int) -> int:
        return 0


def compiled(capability: int, folder: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> list[Any]:
    """The kernels that `work` launches, compiled for an absent GPU and not run."""
    triton = pytest.importorskip("triton", reason=NO_TRITON)
    from triton.runtime.jit import JITFunction

    found, run = [], JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **settings: Any) -> None:
        found.append(run(self, *args, grid=grid, warmup=True, **settings))

    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    monkeypatch.setattr(triton.runtime.driver, "_active", Absent(capability))
    monkeypatch.setattr(JITFunction, "run", compile_only)
    work()
    return found


def stack(kernel: Any, folder: Path) -> int:
    """Bytes of memory that each thread of a compiled kernel takes for what has no register."""
    triton = pytest.importorskip("triton", reason=NO_TRITON)
    file = folder / "kernel.cubin"
    file.write_bytes(kernel.asm["cubin"])
    command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(file)]
    usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"STACK:(\d+)", usage)
    assert found, usage
    return int(found[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("handed", [False, True], ids=["alone", "handed"])
def test_kernels_compile_and_fit_a_gpu(
    capability: int, dtype: torch.dtype, handed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton", reason=NO_TRITON)
    from echokv import kernels

    case = Case(4, 2, 300, 128, dtype)
    inputs, normalizers = case.inputs(), case.normalizers() if handed else None
    made = compiled(capability, tmp_path, monkeypatch, lambda: kernels.column_sums(*inputs, 1.0, normalizers))
    assert len(made) == (1 if handed else 2)
    for kernel in made:
        assert kernel.metadata.shared <= SHARED_MEMORY
        assert bool(re.search(r"mma\S*f32\.bf16\.bf16", kernel.asm["ptx"])) == (dtype == torch.bfloat16)
        assert "tf32" not in kernel.asm["ptx"]
        assert stack(kernel, tmp_path) == 0  # no register is spilled to memory


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("case", [*CASES, Case(9, 3, 4096, 64, torch.bfloat16)], ids=str)
def test_kernels_on_a_gpu_agree_with_plain_torch(case: Case) -> None:
    pytest.importorskip("triton", reason=NO_TRITON)
    from echokv import kernels

    queries, keys = (part.cuda() for part in case.inputs())
    assert kernels.fits(queries)
    sums = column_sums(queries, keys, case.scaling)
    assert torch.equal(sums, column_sums(queries, keys, case.scaling))
    exact = column_sums(queries.double(), keys.double(), case.scaling)
    handed = column_sums(queries, keys, case.scaling, normalizers=case.normalizers().cuda())
    torch.testing.assert_close(handed.double(), exact, rtol=max(1e-4, case.tolerance), atol=1e-5)
    # Tensor cores add up less exactly than the interpreter; rounding to TF32 would be five times this.
    torch.testing.assert_close(sums.double(), exact, rtol=max(1e-4, case.tolerance), atol=1e-5)


# --- The choice ---------------------------------------------------------------------------------------------


class OnGpu(Tensor):
    """A CPU's tensor that says it lies on a GPU."""

    is_cuda = True


def on_gpu(dtype: torch.dtype = torch.float32, dim: int = 64) -> tuple[Tensor, Tensor]:
    queries, keys = Case(4, 2, 17, dim, dtype).inputs()
    return queries.as_subclass(OnGpu), keys.as_subclass(OnGpu)


@pytest.fixture
def plain() -> Tensor:
    return column_sums(*Case(4, 2, 17, 64).inputs(), 1.0)


def test_without_triton_plain_torch_gives_the_sums(plain: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "echokv.kernels", raising=False)
    monkeypatch.delattr("echokv.kernels", raising=False)
    assert torch.equal(column_sums(*on_gpu(), 1.0), plain)


def test_where_triton_cannot_start_a_warning_says_so_once(plain: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    triton = pytest.importorskip("triton", reason=NO_TRITON)
    from echokv import kernels

    class Broken:
        def get_current_target(self) -> None:
            raise RuntimeError("no C compiler")

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(triton.runtime.driver, "_active", Broken())
    monkeypatch.setattr(kernels, "_starts", cache(kernels._starts.__wrapped__))  # one that was not asked before
    with pytest.warns(UserWarning, match=r"plain torch, .* cannot start \(no C compiler\)"):
        assert torch.equal(column_sums(*on_gpu(), 1.0), plain)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(column_sums(*on_gpu(), 1.0), plain)


@pytest.mark.parametrize(
    ("capability", "dtype", "dim", "kernel"),
    [
        ((8, 0), torch.float16, 64, True),
        ((12, 0), torch.float32, 128, True),
        ((7, 5), torch.float16, 64, False),
        ((8, 0), torch.float64, 64, False),
        ((8, 0), torch.float16, 256, False),
    ],
)
def test_the_kernels_run_where_they_fit(
    capability: tuple[int, int], dtype: torch.dtype, dim: int, kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton", reason=NO_TRITON)
    from echokv import kernels

    monkeypatch.setattr(kernels, "_starts", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    launched = torch.empty(4, 17)
    monkeypatch.setattr(kernels, "column_sums", lambda *_: launched)
    assert (column_sums(*on_gpu(dtype, dim), 1.0) is launched) == kernel


if __name__ == "__main__":
    interpret(sys.argv[1])
