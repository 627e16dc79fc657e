"""scripts/authors_sets.py, with files of the authors' form written for this test in place of their code."""

import sys
from pathlib import Path

import pytest
import torch

from eval.console.errors import UserError
from scripts import authors_sets
from scripts.authors_code import load
from tests.models import prompt, tiny

ATTENTION = '''
import torch
from flash_attn import flash_attn_func
from transformers.cache_utils import Cache, DynamicCache


class Flattened(Cache):
    """Named, as theirs are, and never made."""


def paid(queries, keys, window):
    """[H, window, L - window]: what each of the last queries pays to each token before them."""
    before, ratio = keys.shape[2] - window, queries.shape[1] // keys.shape[1]
    rows = []
    for head in range(queries.shape[1]):
        logits = queries[0, head, before:] @ keys[0, head // ratio].T / keys.shape[3] ** 0.5
        for row in range(window):
            logits[row, before + row + 1 :] = -torch.inf
        rows.append(logits.softmax(dim=1)[:, :before])
    return torch.stack(rows)


def pooled(scores, kernel, pooling):
    half, rows = kernel // 2, []
    for row in scores.tolist():
        padded = [0.0] * half + row + [0.0] * half
        parts = [padded[i : i + kernel] for i in range(len(row))]
        rows.append([max(part) if pooling == "maxpool" else sum(part) / kernel for part in parts])
    return torch.tensor(rows, dtype=scores.dtype)


def flat(values, orders, sizes, window):
    """What heads keep, one behind the other: the first of each one's order, and the window."""
    kept = [torch.cat([order[:n], torch.arange(window) + len(order)]) for order, n in zip(orders, sizes)]
    return torch.cat([values[0, head, one] for head, one in enumerate(kept)]), torch.tensor([len(one) for one in kept])


class Cluster:
    def __init__(self, **fields):
        self.__dict__.update(fields)
        self.own = self.base_capacity - self.window_size

    def scores(self, queries, keys, groups):
        mean = paid(queries, keys, self.window_size).mean(dim=1)
        return pooled(mean.view(groups, -1, mean.shape[1]).mean(dim=1), self.kernel_size, self.pooling)

    def update_kv(self, keys, queries, values):
        scores = self.scores(queries, keys, keys.shape[1])
        orders = scores.argsort(dim=1, descending=True, stable=True)
        kept, self.head_lens = flat(values, orders, self.sizes(scores), self.window_size)
        return kept, kept
'''
ADAKV = """
class AdaptiveSnapKVCluster(Cluster):
    def update_kv(self, keys, queries, values):
        if not self.gqa_support:
            keys, values = (part.repeat_interleave(self.num_key_value_groups, dim=1) for part in (keys, values))
        return super().update_kv(keys, queries, values)

    def sizes(self, scores):
        best = sorted((-one, head) for head, row in enumerate(scores.tolist()) for one in row)[: self.own * len(scores)]
        won = [sum(head == other for _, other in best) for head in range(len(scores))]
        return [round(n * (1 - self.floor_alpha) + int(self.own * self.floor_alpha)) for n in won]
"""
HEADKV = """
import json
import os


def repeat_kv(states, times):
    return states.repeat_interleave(times, dim=1)


class ReasonSnapKVCluster(Cluster):
    def sizes(self, scores):
        folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        with open(f"{folder}/Important_Head/head_score/Meta-Llama-3-8B-Instruct_retrieval_heads.json") as file:
            means = [(sum(runs) / len(runs)) ** self.temp for runs in json.load(file).values()]
        pool = self.own // self.beta
        sizes = [round(mean / sum(means) * pool * len(means) + self.own - pool) for mean in means]
        first = self.layer_idx * self.num_attention_heads
        return sizes[first : first + self.num_attention_heads]
"""
CAKE_UTILS = """
def shared(shares, total, most):
    whole = [int(share) for share in shares]
    sizes = [min(size, most) for size in whole]
    for surplus in (sum(whole) - sum(sizes), total - sum(whole)):
        free = [i for i, size in enumerate(sizes) if size < most]
        for place, i in enumerate(free):
            sizes[i] += surplus // len(free) + (place < surplus % len(free))
    return [min(size, most) for size in sizes]
"""
CAKE_CACHE = """
import torch
from cake.utils import shared
from transformers.cache_utils import Cache


class CakeCache(Cache):
    def __init__(self):
        self.value_cache, self.scores, self.wanted = [], [], []


class CakeprefillKVCache:
    def __init__(self, **fields):
        self.__dict__.update(fields)

    def __call__(self, cache, length):
        total, before = (self.cache_size - self.window_size) * self.num_layers, length - self.window_size
        if self.use_cascading:
            print("on the way")
        elif len(cache.wanted) < self.num_layers:
            return
        shares = [one / sum(cache.wanted) * total for one in cache.wanted]
        for layer, size in enumerate(shared(shares, total, before)):
            values, scores = cache.value_cache[layer], cache.scores[layer]
            best = scores.argsort(dim=-1, descending=True, stable=True)[..., :size].sort().values
            window = values[..., -self.window_size :, :]
            index = best[0, ..., None].expand(-1, -1, values.shape[-1])[None]
            cache.value_cache[layer] = torch.cat([values[..., : -self.window_size, :].gather(2, index), window], dim=2)
            cache.scores[layer] = scores.gather(2, best)
"""
CAKE_MODEL = """
from transformers.models.llama.modeling_llama import *
from transformers.modeling_flash_attention_utils import _flash_attention_forward
from ..cake_cache import CakeCache


def llama_attn_forward_cake(
    self, hidden_states, past_key_value=None, position_embeddings=None
) -> Union[CakeCache, List[BaseModelOutputWithPast]]:
    length, config, layer = hidden_states.shape[1], self.config, self.layer_idx
    queries, keys, values = (
        made(hidden_states).view(1, length, -1, self.head_dim).transpose(1, 2)
        for made in (self.q_proj, self.k_proj, self.v_proj)
    )
    queries, keys = apply_rotary_pos_emb(queries, keys, *position_embeddings)
    each = paid(queries, keys, config.window_size[layer])
    spread = each.var(dim=1)
    entropy = -(each * (each + 1e-10).log()).sum()
    scores = pooled(each.mean(dim=1) + config.gamma * spread, 5, "avgpool")
    past_key_value.value_cache.append(values)
    past_key_value.wanted.append(float(entropy ** (1 / config.tau1) * spread.sum() ** (1 / config.tau2)))
    past_key_value.scores.append(scores.view(1, self.num_key_value_heads, -1, scores.shape[1]).mean(dim=2))
    config.prefill_cake_evict[layer](past_key_value, length)
    return _flash_attention_forward(queries, keys, values)
"""
FILES = {
    "adakv/adaptive_snapkv/monkeypatch/snapkv_utils.py": ATTENTION + ADAKV,
    "headkv/headkv/snapkv_utils.py": ATTENTION + HEADKV,
    "cake/cake/utils.py": CAKE_UTILS,
    "cake/cake/cake_cache.py": CAKE_CACHE,
    "cake/cake/model/modify_llama.py": ATTENTION + CAKE_MODEL,
}


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path | None]:
    """Clones of the three."""
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return {name: tmp_path / name for name in authors_sets.AUTHORS}


def counted(folders: dict[str, Path | None], budgets: tuple[int, ...] = (48, 80)) -> dict[str, dict[str, int]]:
    found = authors_sets.compared(folders, tiny("llama"), [torch.tensor(prompt(150))], budgets)
    return {name: dict(verdicts) for name, verdicts in found.items()}


def test_code_of_the_same_meaning_keeps_the_same(folders: dict[str, Path | None]) -> None:
    config, before = tiny("llama").config, set(sys.modules)
    found = counted(folders)
    assert len(found) == 8
    for name, verdicts in found.items():
        heads = config.num_attention_heads if "head" in name else config.num_key_value_heads
        assert verdicts == {"equal": 2 * config.num_hidden_layers * heads}, name
    assert "flash_attn" not in set(sys.modules) - before


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("adakv/adaptive_snapkv/monkeypatch/snapkv_utils.py", "int(self.own * self.floor_alpha)", "self.own * 0.9"),
        ("headkv/headkv/snapkv_utils.py", "+ self.own - pool", "+ self.own - pool + 1"),
        ("cake/cake/utils.py", "total - sum(whole)", "0"),
    ],
)
def test_code_of_another_meaning_does_not(
    folders: dict[str, Path | None], name: str, right: str, wrong: str, tmp_path: Path
) -> None:
    assert FILES[name].count(right) == 1
    (tmp_path / name).write_text(FILES[name].replace(right, wrong))
    own = name.split("/")[0]
    assert any("different" in verdicts for verdicts in counted(folders | dict.fromkeys({*folders} - {own})).values())


def test_a_policy_without_a_clone_is_left_out(folders: dict[str, Path | None]) -> None:
    assert set(counted({"adakv": None, "headkv": folders["headkv"], "cake": None})) == {"headkv", "headkv, beta 1.005"}


def test_no_clone_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert authors_sets.main([]) == 1
    assert capsys.readouterr().err == "error: no clone given: --adakv, --headkv and --cake each take a folder\n"


def test_a_folder_that_is_no_clone(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"snapkv_utils.py: No such file or directory; give the folder of a clone"):
        counted({"adakv": tmp_path, "headkv": None, "cake": None})


def test_code_of_another_version(folders: dict[str, Path | None], tmp_path: Path) -> None:
    (tmp_path / "headkv/headkv/snapkv_utils.py").write_text("class Renamed:\n    pass\n")
    with pytest.raises(UserError, match=r"of another version than this script knows: .*ReasonSnapKVCluster"):
        counted({"adakv": None, "headkv": folders["headkv"], "cake": None})


def test_a_stand_in_may_be_named_and_not_used(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text("from flash_attn import f\nclass Own(f):\n    pass\ndef run():\n    import nvtx\n    nvtx.mark()\n")
    code = load(file)
    for use in (code.Own, code.f, code.run):
        with pytest.raises(UserError, match="of which only the name is here"):
            use()
