"""What the authors' own classes keep of a prefill: their files are executed as they lie in the user's clones."""

from __future__ import annotations

import builtins
import io
import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn, Union

import torch
from jaxtyping import Float
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb, repeat_kv

from baselines.ada import AdaSnapKV
from baselines.cake import CAKE
from baselines.headkv import HeadKV
from echokv import Prefill
from eval.console.errors import UserError

Kept = list[list[list[int]]]  # positions by layer and head, ascending
REAL = sys.stdlib_module_names | {"torch", "numpy"}  # what their files may import as it is
SCORES = "Important_Head/head_score/Meta-Llama-3-8B-Instruct_retrieval_heads.json"  # where HeadKV's class looks


class Reached(Exception):
    """The authors' code has come to the model's attention: what it keeps has been decided."""


class Unused:
    """Stands for anything of a package that is not needed here: it may be named and subclassed, not used."""

    def __init__(self, *_: object, **__: object) -> None:
        name = f"{type(self).__module__}.{type(self).__name__}"
        raise UserError(f"the authors' code used {name}, of which only the name is here: is it another commit?")


class Absent(ModuleType):
    """Stands for a package that their files import, such as flash_attn."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Unused,), {"__module__": self.__name__})


class Reader(SourceFileLoader):
    """Python's own, which leaves nothing in the folder that it reads from."""

    def set_data(self, *_: object, **__: object) -> None:
        pass


def load(file: Path, given: Mapping[str, Any] | None = None, place: Path | None = None) -> Any:
    """Execute a file of the authors' as a module of its own; nothing of Python's or of other modules is changed.

    given: modules that it imports, by the names it uses. What else is neither Python's, torch nor numpy is `Absent`.
    place: where it is told that it lies.

    Raises UserError if it cannot be read.
    """
    known = given or {}

    def find(name: str, outer: Any = None, inner: Any = None, wanted: Any = (), level: int = 0) -> Any:
        if name in known:
            return known[name]
        if level == 0 and name.partition(".")[0] in REAL:
            return builtins.__import__(name, outer, inner, wanted, level)
        return Absent(name)

    loader = Reader(file.stem, str(file))
    module = ModuleType(file.stem)
    module.__dict__.update(__file__=str(place or file), __builtins__={**vars(builtins), "__import__": find})
    try:
        loader.exec_module(module)
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}; give the folder of a clone that has this file") from error
    return module


def states(p: Prefill, layer: int, window: int) -> tuple[Tensor, Tensor, Tensor]:
    """A layer's queries, keys and values [1, heads, L, D], as a model hands them to its attention.

    Values hold their position, so that what is kept can be read off them. Of the queries only the last `window` are
    there; in place of the others is NaN, which nothing that reads it survives.
    """
    keys = p.keys[layer]
    queries = keys.new_full((p.heads, p.length, keys.shape[-1]), torch.nan)
    queries[:, -window:] = p.last_queries(layer, window)
    values = torch.arange(p.length, dtype=keys.dtype)[:, None].expand_as(keys)
    return queries[None], keys[None], values[None]


def heads(flat: Float[Tensor, "kept D"], lengths: Tensor) -> list[list[int]]:
    """Positions by head, of values that lie head after head."""
    return [sorted(part.tolist()) for part in flat[:, 0].long().split(lengths.tolist())]


def adakv(folder: Path, press: AdaSnapKV, p: Prefill, budget: int) -> Kept:
    """What AdaptiveSnapKVCluster keeps, with `gqa_support` for KV heads and without for query heads."""
    code = load(folder / "adaptive_snapkv/monkeypatch/snapkv_utils.py")
    kept = []
    for layer in range(p.layers):
        cluster = code.AdaptiveSnapKVCluster(
            window_size=press.window, kernel_size=press.kernel, pooling=f"{press.pooling}pool", base_capacity=budget,
            floor_alpha=press.part, skip=0, normalize=False, layer_idx=layer, num_hidden_layers=p.layers,
            gqa_support=press.granularity == "kv_head", num_key_value_groups=p.heads // p.groups,
        )  # fmt: skip
        queries, keys, values = states(p, layer, press.window)
        _, flat = cluster.update_kv(keys, queries, values)
        kept.append(heads(flat, cluster.head_lens))
    return kept


def lay_scores(scratch: Path, layers: int, heads: int) -> Path:
    """A file of made-up importances where HeadKV's class looks for one of a model's; few heads have most."""
    drawn = torch.rand(layers * heads, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 4
    runs = {f"{at // heads}-{at % heads}": [score, score / 2] for at, score in enumerate(drawn.tolist())}
    file = scratch / SCORES
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(runs), encoding="utf-8")
    return file


def headkv(folder: Path, press: HeadKV, p: Prefill, budget: int) -> Kept:
    """What ReasonSnapKVCluster keeps. It looks for importances beside itself: it is told that it lies beside ours."""
    beside = Path(press.files["importance"]).parents[2]
    code = load(folder / "headkv/snapkv_utils.py", place=beside / "headkv/snapkv_utils.py")
    kept = []
    for layer in range(p.layers):
        cluster = code.ReasonSnapKVCluster(
            window_size=press.window, kernel_size=press.kernel, pooling=f"{press.pooling}pool", base_capacity=budget,
            head_choice="copy", beta=press.beta, temp=press.temperature, layer_idx=layer, num_hidden_layers=p.layers,
            num_attention_heads=p.heads, model="llama",
        )  # fmt: skip
        queries, keys, values = states(p, layer, press.window)
        repeated = [code.repeat_kv(part, p.heads // p.groups) for part in (keys, values)]  # as their model does before
        _, flat = cluster.update_kv(repeated[0], queries, repeated[1])
        kept.append(heads(flat, cluster.head_lens))
    return kept


@dataclass(frozen=True)
class Projection:
    """A linear layer that gives the same [1, L, heads * D] whatever it is given."""

    weight: Tensor

    def __call__(self, hidden: Tensor) -> Tensor:
        return self.weight


def cake(folder: Path, press: CAKE, p: Prefill, budget: int) -> Kept:
    """What llama_attn_forward_cake leaves in a CakeCache, layer after layer; `use_cascading` as `total` has it."""
    code = cake_code(folder)
    evict = code.cache.CakeprefillKVCache(
        cache_size=budget, window_size=press.window, num_heads=p.heads, num_layers=p.layers,
        use_cascading=press.total == "cascading",
    )  # fmt: skip
    every = {
        "window_size": press.window, "key_size": budget - press.window, "prefill": True, "decoding_evict": None,
        "prefill_cake_evict": evict,
    }  # fmt: skip
    lists = {name: [value] * p.layers for name, value in every.items()}
    config = SimpleNamespace(**lists, tau1=press.tau1, tau2=press.tau2, gamma=press.gamma)
    cache = code.cache.CakeCache()
    # Keys and queries have RoPE already: cosine and sine of no turn.
    still = p.keys[0].new_ones(1, p.length, 1), p.keys[0].new_zeros(1, p.length, 1)
    for layer in range(p.layers):
        queries, keys, values = (Projection(part.transpose(1, 2).flatten(2)) for part in states(p, layer, press.window))
        attention = SimpleNamespace(
            config=config, layer_idx=layer, num_heads=p.heads, num_key_value_heads=p.groups,
            num_key_value_groups=p.heads // p.groups, head_dim=p.keys[0].shape[-1], q_proj=queries, k_proj=keys,
            v_proj=values, training=False, attention_dropout=0.0, is_causal=True, _flash_attn_uses_top_left_mask=False,
        )  # fmt: skip
        with redirect_stdout(io.StringIO()), suppress(Reached):  # when it cascades, it prints
            code.forward(attention, queries.weight, past_key_value=cache, position_embeddings=still)
    return [[sorted(head[:, 0].long().tolist()) for head in values[0]] for values in cache.value_cache]


def cake_code(folder: Path) -> SimpleNamespace:
    """The cache's module and the attention's forward function; flash attention in it is where we stop."""

    def reached(*_: object, **__: object) -> NoReturn:
        raise Reached

    utils = load(folder / "cake/utils.py")
    cache = load(folder / "cake/cake_cache.py", {"cake.utils": utils})
    # Their file takes all names of transformers' of that time; these are what it uses.
    llama = SimpleNamespace(
        apply_rotary_pos_emb=apply_rotary_pos_emb, repeat_kv=repeat_kv, logger=SimpleNamespace(warning_once=print),
        BaseModelOutputWithPast=BaseModelOutputWithPast, List=list, Union=Union,
    )  # fmt: skip
    given = {
        "cake_cache": cache,
        "utils": utils,
        "transformers.models.llama.modeling_llama": llama,
        "transformers.modeling_flash_attention_utils": SimpleNamespace(_flash_attention_forward=reached),
    }
    model = load(folder / "cake/model/modify_llama.py", given)
    return SimpleNamespace(cache=cache, forward=model.llama_attn_forward_cake)
