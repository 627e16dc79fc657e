"""A model that is not what its files say is refused in one line, the first wrong key or id by name."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from echokv import UsageError, load_model, load_tokenizer
from echokv.checkpoints import added
from echokv.supported import KINDS, refuse_unsupported
from eval.console.errors import UserError
from eval.inputs.truncation import encode

ROOT = Path(__file__).parent.parent
Weights = dict[str, torch.Tensor]


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folder, tmp_path / "model"))


def rewritten(folder: Path, change: Callable[[Weights], Weights]) -> None:
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


def configured(folder: Path, name: str = "config.json", **changes: Any) -> None:
    path = folder / name
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | changes))


def refused(folder: Path) -> str:
    with pytest.raises(UsageError) as error:
        load_model(str(folder), device="cpu")
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda w: {k: v for k, v in w.items() if k != "lm_head.weight"}, "lacks lm_head.weight"),
        (
            lambda w: {k: v for k, v in w.items() if "layers.1." not in k},
            "lacks model.layers.1.input_layernorm.weight, model.layers.1.mlp.down_proj.weight and 7 more",
        ),
        (
            lambda w: {f"module.{k}": v for k, v in w.items()},
            "lacks lm_head.weight, model.embed_tokens.weight and 19 more, and has module.lm_head.weight",
        ),
    ],
    ids=["no output matrix", "one layer short", "every key prefixed"],
)
def test_weights_that_the_model_lacks_are_named(
    folder: Path, change: Callable[[Weights], Weights], says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    rewritten(folder, change)
    assert says in refused(folder)
    assert "LOAD REPORT" not in "".join(capfd.readouterr()), "one line, no table"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_hidden_layers": 1}, "has model.layers.1.input_layernorm.weight, model.layers.1.mlp.down_proj.weight"),
        ({"vocab_size": 300}, "lm_head.weight of shape 259x32 instead of 300x32"),
        ({"intermediate_size": 60}, "mlp.down_proj.weight of shape 32x64 instead of 32x60"),
        ({"num_key_value_heads": 3}, "4 query heads for 3 KV heads"),
        ({"num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": None}, "hidden size of 32 among 3 heads"),
        ({"head_dim": 7}, "heads of size 7"),
        ({"model_type": "marvel"}, "model type 'marvel' is not supported"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "this model has linear_attention layers; known are"),
        (
            {"sliding_window": 64},
            "all layers of this model have a sliding window of 64 tokens and drop keys themselves",
        ),
        ({"attn_logit_softcapping": 50.0}, "attention logits are softcapped, which is not computed here"),
        ({"use_bidirectional_attention": True}, "this model's tokens see those behind them too"),
        ({"quantization_config": {"quant_method": "nonsense"}}, "is quantised by 'nonsense'"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "GPTQ"),
        ({"quantization_config": {"load_in_4bit": True}}, "bitsandbytes"),
        ({"eos_token_id": 259}, "the end-of-text id is 259, but the model embeds 259 tokens"),
        ({"eos_token_id": [256, 400]}, "the end-of-text id is 400"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_configuration_that_does_not_fit_is_named(folder: Path, changes: dict[str, Any], says: str) -> None:
    configured(folder, **changes)
    assert says in refused(folder)


def test_ends_of_the_generation_settings_are_checked_too(folder: Path) -> None:
    configured(folder, "generation_config.json", eos_token_id=[256, 999])
    assert "the end-of-text id is 999" in refused(folder)
    (folder / "generation_config.json").write_text("{")
    assert "generation_config.json is not readable JSON" in refused(folder)


def test_a_tied_output_matrix_is_not_missing(folder: Path) -> None:
    rewritten(folder, lambda w: {k: v for k, v in w.items() if k != "lm_head.weight"})
    configured(folder, tie_word_embeddings=True)
    model, _ = load_model(str(folder), device="cpu")
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_qwen_names_a_window_that_it_does_not_use() -> None:
    """As Qwen2.5's own config.json does."""
    config = {"model_type": "qwen2", "sliding_window": 131072, "max_window_layers": 28, "num_hidden_layers": 28}
    refuse_unsupported(config | {"use_sliding_window": False})
    refuse_unsupported(config | {"use_sliding_window": True})  # of layers from the 28th on, of which there is none


def test_a_window_of_all_layers_leaves_nothing_to_evict() -> None:
    """Unless it is no shorter than the model's positions; files may tell it by layer or for all layers."""
    config = {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 64}
    all_layers = config | {"layer_types": ["sliding_attention"] * 4}
    for refused_one in (all_layers, {"model_type": "mistral", "sliding_window": 64}):
        with pytest.raises(UsageError, match="sliding window of 64 tokens and drop keys themselves, so that nothing"):
            refuse_unsupported(refused_one | {"max_position_embeddings": 65})
        refuse_unsupported(refused_one | {"max_position_embeddings": 64})
    refuse_unsupported({"model_type": "gemma3_text", "sliding_window": 64, "sliding_window_pattern": 6})


def test_what_a_folder_lacks_is_named(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "elsewhere.safetensors")
    assert "it has no model.safetensors" in refused(folder)
    (folder / "config.json").unlink()
    (folder / "adapter_config.json").write_text("{}")
    assert "it has no config.json; it holds an adapter: merge it into its model first" in refused(folder)


def tokenizer_json(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_tokens_beyond_the_embedding_are_named(folder: Path) -> None:
    token = {"id": 300, "content": "<|more|>", "special": True}
    token |= dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer_json(folder, lambda content: content["added_tokens"].append(token))
    said = refused(folder)
    assert "the tokenizer makes id 259 ('<|more|>'), but the model embeds 259 tokens" in said


def around(*pieces: str) -> Callable[[dict[str, Any]], None]:
    """A post-processor that puts tokens around a text, A: those of a real tokenizer.json."""
    single = [
        {"Sequence": {"id": "A", "type_id": 0}} if one == "A" else {"SpecialToken": {"id": one, "type_id": 0}}
        for one in pieces
    ]
    known = {"<|end|>": 256, "<|user|>": 257}
    tokens = {name: {"id": name, "ids": [token], "tokens": [name]} for name, token in known.items()}
    made = {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": tokens}
    return lambda content: content.update(post_processor=made)


def test_tokens_put_around_every_text_are_found_at_both_ends(folder: Path) -> None:
    tokenizer_json(folder, around("A", "<|end|>"))
    said = refused(folder)
    assert "the tokenizer puts '<|end|>' behind every text, so a prompt would be over before its answer" in said
    tokenizer_json(folder, around("<|user|>", "A"))
    assert "the tokenizer puts '<|user|>' in front of every text" in refused(folder)
    configured(folder, "tokenizer_config.json", bos_token="<|user|>")
    _, tokenizer = load_tokenizer(str(folder))
    assert added(tokenizer) == ([257], []), "a begin-of-text token is what belongs there"


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ({"rag": "{{ messages[0]['content'] }}", "tool": "{{ messages[0]['content'] }}"}, "rag, tool"),
        ("{{ raise_exception('no user turn first') }}", "no user turn first"),
        ("{{ messages[0]['content'].nosuch.field }}", "nosuch"),
        ("{% for message in messages %}", "chat template"),
    ],
    ids=["no default", "raises", "undefined", "syntax"],
)
def test_a_template_that_cannot_be_used_is_told(tiny_folder: Path, template: Any, says: str) -> None:
    _, tokenizer = load_tokenizer(str(tiny_folder))
    tokenizer.chat_template = template
    with pytest.raises(UserError) as error:
        encode("words", tokenizer, limit=100, chat=True)
    assert "the chat template" in str(error.value)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    encode("words", tokenizer, limit=100, chat=False)


REFUSED_EARLY = """
import sys
from eval.console.errors import UserError
from eval.planning.weights import weights
try:
    weights(sys.argv[1], None)
except UserError as error:
    print(error)
print("torch" in sys.modules, "transformers" in sys.modules)
"""


def test_an_unsupported_kind_is_told_before_torch_is_imported(folder: Path) -> None:
    configured(folder, model_type="mamba")
    (folder / "model.safetensors").write_bytes(b"never read")
    command = [sys.executable, "-c", REFUSED_EARLY, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"model type 'mamba' is not supported: it is none of those tried, {', '.join(KINDS)}",
        "False False",
    ]
