"""What a prefill refuses and how presses read it, beside the acceptance tests."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from baselines.full import FullKV
from baselines.snapkv import SnapKV
from echokv import Needs, Prefill, Press, Session, Stretch, UsageError, advance, decode, prefill
from tests.families import family
from tests.models import build, prompt
from tests.policies import shared_prefill


def test_overflow_is_told_whatever_the_policy() -> None:
    """FullKV compares no scores, so that nothing later would notice."""
    model = build("llama")
    for weight in (model.model.layers[1].mlp.up_proj.weight, model.model.layers[1].mlp.down_proj.weight):
        weight.data.mul_(1e3)
    with pytest.raises(UsageError, match="activations overflow; use bfloat16 or float32"):
        prefill(model.half(), torch.tensor(prompt(200)), FullKV().needs)


@dataclass(frozen=True, kw_only=True)
class HalfRecent(Press):
    """Protects as many recent tokens as half the budget, and does or does not say that its scores depend on it."""

    says: bool

    def scope(self, budget: int) -> int | None:
        return budget if self.says else None

    def score(self, prefill: Prefill, budget: int | None) -> list[Tensor]:
        recent = torch.arange(prefill.length) >= prefill.length - budget // 2  # type: ignore[operator]
        return [torch.where(recent, torch.inf, keys.norm(dim=-1)) for keys in prefill.keys]


def test_scores_that_depend_on_the_budget_must_say_so() -> None:
    p = shared_prefill("llama", 200)
    alone = HalfRecent(says=True).select(p, 96)
    _, after = HalfRecent(says=True).select_all(p, [40, 96])
    assert all(torch.equal(one, other) for one, other in zip(alone.indices, after.indices, strict=True))
    with pytest.raises(TypeError):  # not the scores of another budget in silence
        HalfRecent(says=False).select(p, 96)


def test_one_token_at_a_time_is_decoding() -> None:
    p = shared_prefill("llama", 200)
    kept = SnapKV(window=8).select(p, 40)
    session = Session(p, kept)
    tokens = [session.next_token]
    for _ in range(5):
        advance(Stretch(session, 1))
        tokens.append(session.next_token)
    assert tokens == decode(p, kept, 6)


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_what_is_kept_of_all_layers_is_one_block_of_its_own(name: str) -> None:
    """Nothing of the prompt is kept alive beside it, and of layers that slide there is no room in it."""
    model = build(name) if name == "llama" else family(name)
    p = prefill(model, torch.tensor(prompt(40)), Needs(window=8, column_sums=True))
    for parts in (p.keys, p.values, p.queries, p.column_sums()):
        assert len({part.untyped_storage().data_ptr() for part in parts}) == 1
        assert parts[0].untyped_storage().nbytes() == sum(part.nbytes for part in parts)
