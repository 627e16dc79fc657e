"""What is checked: the machine, a model of random weights and the policies of Table 3."""

from __future__ import annotations

import time
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

from .figures import Figure

SHAPE = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 32000,
}  # fmt: skip
TINY = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64,
}  # fmt: skip


class Bench:
    """The machine, the model and its prompts; `dry` on a CPU."""

    def __init__(self, dry: bool) -> None:
        self.dry = dry
        self.device = torch.device("cpu") if dry else torch.device("cuda", 0)
        self.dtype = torch.float32 if dry else torch.float16
        self.lengths = (300, 500) if dry else (8_192, 31_500)
        self.budgets = (48, 64, 100) if dry else (128, 256, 512)
        self.seconds: dict[str, float] = {}  # what the projection is made of

    @cached_property
    def model(self) -> Any:
        return random_model(TINY if self.dry else SHAPE, self.device, self.dtype)

    @cached_property
    def presses(self) -> dict[str, Press]:
        return presses(160 if self.dry else 1024)

    def prefill(self, length: int, needs: Needs | None = None) -> Prefill:
        ids = torch.randint(1, 64, (length,), generator=torch.Generator().manual_seed(length))
        return prefill(self.model, ids, needs or Needs(window=32))

    def chosen(self, filled: Prefill) -> list[Selection]:
        some = [one for press in self.presses.values() for one in press.select_all(filled, self.budgets)]
        return [FullKV().select(filled), *some]

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
