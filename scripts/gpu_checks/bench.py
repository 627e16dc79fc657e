"""What is checked: the machine, a model of random weights and the policies of Table 3; and how it is measured."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch

from baselines.full import FullKV
from baselines.h2o import H2O
from baselines.laq import LAQ
from baselines.pyramidkv import PyramidKV
from baselines.snapkv import SnapKV
from baselines.streaming_llm import StreamingLLM
from echokv import EchoKV, Needs, Prefill, Press, Selection, prefill
from eval.answering.together import choose

from .figures import Figure

SHAPE = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 32000,
}  # fmt: skip
TINY = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64,
}  # fmt: skip
NARROW = {**TINY, "hidden_size": 512, "num_attention_heads": 8, "head_dim": 128}


class Bench:
    """The machine, the model and its prompts; `dry` on a CPU."""

    def __init__(self, dry: bool) -> None:
        self.dry = dry
        self.device = torch.device("cpu") if dry else torch.device("cuda", 0)
        self.dtypes = (torch.float32,) if dry else (torch.float16, torch.bfloat16, torch.float32)
        self.lengths = (300, 500) if dry else (8_192, 31_500)
        self.budgets = (48, 64, 100) if dry else (128, 256, 512)
        self.short = 300 if dry else 2_048  # tokens of what is computed in float64 as well
        self.copied, self.square = (1 << 20, 256) if dry else (1 << 32, 8_192)
        self.shape, self.workspace = (TINY, 160) if dry else (SHAPE, 1024)
        self.seconds: dict[str, float] = {}  # what the projection is made of
        self.rate = 0.0  # bytes read or written in a second by a plain copy

    @cached_property
    def model(self) -> Any:
        return random_model(self.shape, self.device, self.dtypes[0])

    @cached_property
    def presses(self) -> dict[str, Press]:
        return presses(self.workspace)

    def prefill(self, length: int, needs: Needs | None = None) -> Prefill:
        ids = torch.randint(1, 64, (length,), generator=torch.Generator().manual_seed(length))
        return prefill(self.model, ids, needs or Needs(window=32))

    def chosen(self, filled: Prefill) -> list[Selection]:
        """Of every policy at every budget and of FullKV, made side by side as a run makes them."""
        some = choose([(filled, press, self.budgets) for press in self.presses.values()])
        return [FullKV().select(filled), *(one for choice in some for one in choice.selections)]

    def now(self) -> float:
        if not self.dry:
            torch.cuda.synchronize()
        return time.perf_counter()

    def took(self, work: Callable[[], object], times: int = 3) -> float:
        """Seconds of the quickest, after one that does not count."""
        work()
        found = []
        for _ in range(times):
            begun = self.now()
            work()
            found.append(self.now() - begun)
        return min(found)

    def cost(self, said: str, value: float, bar: float) -> Figure:
        """Time or memory that has a bar, which a dry run cannot be held to."""
        return Figure(said, value, f"at most {bar:g}", None if self.dry else value <= bar)

    def counted(self, said: str, value: int, bar: int) -> Figure:
        """A number of launches: none were not seen, which is no good sign."""
        return Figure(said, value, f"at most {bar:,}", None if self.dry else 0 < value <= bar)

    def launched(self, work: Callable[[], object]) -> list[tuple[float, str]]:
        """What the GPU runs of it, kernels and copies: microseconds and name of each. A dry run has none."""
        if self.dry:
            return []
        work()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            work()
            self.now()
        events = profile.events() or []
        device = torch.autograd.DeviceType.CUDA
        return [(one.device_time_total, one.name) for one in events if one.device_type == device]

    def waits(self, work: Callable[[], object]) -> int:
        """How often it holds the host until the GPU has caught up."""
        if self.dry:
            return 0
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                work()
            finally:
                torch.cuda.set_sync_debug_mode("default")
        return sum("called a synchronizing" in str(one.message) for one in found)

    def peak(self) -> float:
        return 0.0 if self.dry else torch.cuda.max_memory_allocated() / 1e9


def random_model(shape: dict[str, int], device: torch.device, dtype: torch.dtype) -> Any:
    """Mistral with random weights, queries and keys large enough that attention is far from uniform."""
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(**shape, sliding_window=None, max_position_embeddings=32_768, attn_implementation="sdpa")
    with torch.device(device):
        model = MistralForCausalLM._from_config(config, dtype=dtype).eval().requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.q_proj.weight.mul_(4)
        layer.self_attn.k_proj.weight.mul_(4)
    return model


def presses(workspace: int) -> dict[str, Press]:
    """Table 3's policies as the preset `paper` has them."""
    query: dict[str, Any] = {"granularity": "query_head", "precision": "legacy"}
    return {
        "StreamingLLM": StreamingLLM(granularity="query_head"),
        "H2O": H2O(queries="window", **query),
        "SnapKV": SnapKV(**query),
        "PyramidKV": PyramidKV(**query),
        "LAQ": LAQ(workspace=workspace, mask="official", **query),
        "EchoKV": EchoKV(workspace=workspace, precision="legacy"),
    }
