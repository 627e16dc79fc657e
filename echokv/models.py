"""Loading a model and its tokenizer from a hub name, a local folder, a GGUF file, or the embedded SmolLM2."""

import re
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from echokv import embedded
from echokv.errors import UsageError
from echokv.prefill import refuse_model

DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}


def load_model(
    name: str,
    dtype: str = "auto",
    device: str = "auto",
    attention: str = "sdpa",
    revision: str | None = None,
    device_map: str | None = None,
) -> tuple[Any, Any]:
    """Load a causal language model for inference, and its tokenizer.

    name: "smollm2" (embedded), a hub name, a local folder with safetensors, or a .gguf file. Weights in other
        formats are refused, and no code from the hub is run.
    dtype: "auto" (the checkpoint's), "float32", "float16", "bfloat16" or "float64".
    device: "auto" (CUDA where there is one), "cpu", "cuda" or "cuda:N". device_map="auto" spreads one model
        over all GPUs and overrules it.
    attention: "sdpa" or "flash_attention_2", the kernel of the prefill.

    Raises UsageError if the device or kernel is unknown or missing, the model cannot be found or reached, or its layers
    drop keys themselves.
    """
    target = device_named(device)
    _check_attention(attention, target, dtype)
    if dtype not in (*DTYPES, "auto"):
        raise UsageError(f"dtype '{dtype}' is unknown; use auto, {', '.join(DTYPES)}")
    folder, source = _source(name, revision)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **source)
        if "gguf_file" not in source:
            source["use_safetensors"] = True
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=DTYPES.get(dtype, "auto"),
            attn_implementation=attention,
            device_map=device_map,
            **source,
        )
    except Exception as error:
        # safetensors has an error of its own, for files that are cut short or damaged.
        if not isinstance(error, OSError | ValueError) and type(error).__name__ != "SafetensorError":
            raise
        raise UsageError(_why(name, error)) from error
    refuse_model(model.config)
    return (model if device_map else model.to(target)).eval(), tokenizer


def load_tokenizer(name: str, revision: str | None = None) -> tuple[Any, Any]:
    """Load a model's `config` and `generation_config`, as fields of one object, and its tokenizer; no weights.

    Raises UsageError as `load_model` does.
    """
    folder, source = _source(name, revision)
    try:
        config = AutoConfig.from_pretrained(folder, **source)
        tokenizer = AutoTokenizer.from_pretrained(folder, **source)
    except (OSError, ValueError) as error:
        raise UsageError(_why(name, error)) from error
    try:
        generation = GenerationConfig.from_pretrained(folder, revision=revision)
    except OSError:  # a model need not have one
        generation = GenerationConfig.from_model_config(config)
    return SimpleNamespace(config=config, generation_config=generation), tokenizer


def _source(name: str, revision: str | None) -> tuple[str, dict[str, Any]]:
    """Where transformers finds a model, and the arguments that say so."""
    safe: dict[str, Any] = {"trust_remote_code": False}
    if name == embedded.NAME:
        return str(embedded.folder()), safe
    if name.endswith(".gguf"):
        return str(Path(name).parent), {**safe, "gguf_file": Path(name).name}
    return name, {**safe, "revision": revision}


def device_named(device: str) -> str:
    """What "auto", "cpu", "cuda" or "cuda:N" stands for here. Raises UsageError for others and for missing GPUs."""
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", device):
        raise UsageError(f"device '{device}' is unknown; use auto, cpu, cuda or cuda:N")
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError(f"device '{device}' asked for, but torch sees no CUDA GPU: use model.device=cpu")
    if device.startswith("cuda:") and int(device[5:]) >= torch.cuda.device_count():
        raise UsageError(f"device '{device}' asked for, but there are {torch.cuda.device_count()} GPUs")
    return device


def _check_attention(attention: str, device: str, dtype: str) -> None:
    if attention not in ("sdpa", "flash_attention_2"):
        raise UsageError(f"attention '{attention}' is unknown; use sdpa or flash_attention_2")
    if attention == "sdpa":
        return
    if find_spec("flash_attn") is None:
        raise UsageError(
            "attention 'flash_attention_2' asked for, but flash-attn is not installed: "
            "pip install --no-build-isolation -e '.[flash-attn]', or use model.attention=sdpa"
        )
    if not device.startswith("cuda") or dtype not in ("auto", "float16", "bfloat16"):
        raise UsageError(
            f"flash attention needs a CUDA GPU and float16 or bfloat16, not {device} and {dtype}: "
            "use model.attention=sdpa"
        )


def _why(name: str, error: Exception) -> str:
    """One line for the ways in which loading fails."""
    local = Path(name)
    text = " ".join(str(error).split())
    if local.exists():
        return (
            f"cannot load a model from {name}: {text[:200]} (a folder needs config.json, a tokenizer and safetensors)"
        )
    if local.is_absolute() or name.startswith((".", "~")):
        return f"model folder {name} does not exist: give an existing folder or a hub name"
    return (
        f"cannot get '{name}' from the model hub ({text[:120]}): check the network and your access, "
        "or point to a local folder with model.name=/path/to/folder"
    )
