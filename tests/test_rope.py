"""RoPE whose frequencies depend on how long a sequence is: what two sessions could differ by is refused."""

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from baselines.full import FullKV
from echokv import EchoKV, Prefill, UsageError, decode, prefill
from echokv.graphs import step_recorder
from echokv.supported import refuse_unsupported
from tests.models import VOCAB, prompt, randomise

POSITIONS = 64


def dynamic() -> Any:
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=POSITIONS, bos_token_id=None, eos_token_id=None,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0},
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    randomise(model, seed=3)
    return model


def filled(model: Any, length: int) -> Prefill:
    return prefill(model, torch.tensor(prompt(length)))


def test_a_dynamic_rope_is_right_up_to_its_positions() -> None:
    """Also after the model itself has been used beyond them, which leaves it with other frequencies."""
    model, ids = dynamic(), torch.tensor([prompt(POSITIONS - 12)])
    expected = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=13, do_sample=False, pad_token_id=0
    )
    p = filled(model, POSITIONS - 12)
    whole = FullKV().select(p, None)
    answer = decode(p, whole, 13)
    assert answer == decode(p, whole, 13) == expected[0, POSITIONS - 12 :].tolist()
    model(torch.tensor([prompt(POSITIONS + 40)]))
    again = filled(model, POSITIONS - 12)
    assert decode(again, whole, 13) == answer


@pytest.mark.parametrize("left", [0, 5])
def test_what_would_feed_a_dynamic_rope_beyond_its_positions_is_refused(left: int) -> None:
    """Of two sessions of one prefill the second would find the frequencies that the first left."""
    model = dynamic()
    p = filled(model, POSITIONS - left)
    before = model.model.rotary_emb.inv_freq.clone()
    whole = FullKV().select(p, None)
    assert len(decode(p, whole, left + 1)) == left + 1  # the last needs no position
    with pytest.raises(UsageError, match=r"65 positions are wanted, .* beyond 64: shorten the prompt"):
        decode(p, whole, left + 2)
    with pytest.raises(UsageError, match="this model's dynamic RoPE changes all keys beyond 64"):
        EchoKV(workspace=20).select(p, 30)  # its proposals lie there
    assert torch.equal(model.model.rotary_emb.inv_freq, before)


def test_steps_of_a_dynamic_rope_are_not_recorded() -> None:
    with pytest.raises(UsageError, match="cannot record the steps of a model with a dynamic RoPE: leave it at auto"):
        step_recorder(True, dynamic(), print)
    assert step_recorder("auto", dynamic(), print) is None


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_parameters": {"rope_type": "longrope"}},
        {"rope_scaling": {"type": "su"}},
        {"rope_parameters": {"full_attention": {"rope_type": "longrope"}}},
    ],
)
def test_longrope_is_refused(rope: dict[str, Any]) -> None:
    """From config.json, in the forms that it has had."""
    with pytest.raises(UsageError, match="RoPE is 'longrope', whose frequencies depend on the longest sequence"):
        refuse_unsupported({"model_type": "phi3", **rope})
