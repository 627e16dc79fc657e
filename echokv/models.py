"""Loading a model and its tokenizer from a hub name, a local folder, a GGUF file, or the embedded SmolLM2."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING
from transformers.utils import logging as transformers_logging

from echokv import embedded
from echokv.checkpoints import (
    Checkpoint,
    read_json,
    refuse_incomplete,
    refuse_quantized,
    refuse_tokenizer,
)
from echokv.errors import UsageError
from echokv.supported import refuse_unsupported

DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}
# What loading raises for files that are missing, damaged or contradictory, or need another package; by name, for two
# are of packages that only transformers uses.
LOADING = {"OSError", "ValueError", "ImportError", "SafetensorError", "StrictDataclassError"}


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

    Raises UsageError if the device or kernel is unknown or missing, the model cannot be found or reached, its layers
    drop keys themselves, its weights are not those that its configuration asks for, or its tokenizer is not its own.
    """
    target = device_named(device)
    _check_attention(attention, target, dtype)
    if dtype not in (*DTYPES, "auto"):
        raise UsageError(f"dtype '{dtype}' is unknown; use auto, {', '.join(DTYPES)}")
    about, tokenizer = load_tokenizer(name, revision)
    folder, source = _source(name, revision)
    if "gguf_file" not in source:
        source["use_safetensors"] = True
    refuse_quantized(name, about.config.to_dict(), AUTO_QUANTIZATION_CONFIG_MAPPING)
    with _told(name), _quiet():
        model, found = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=DTYPES.get(dtype, "auto"),
            attn_implementation=attention,
            device_map=device_map,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # told below, with the sizes
            **source,
        )
    refuse_incomplete(name, found)
    return (model if device_map else model.to(target)).eval(), tokenizer


def load_tokenizer(name: str, revision: str | None = None) -> tuple[Any, Any]:
    """Load a model's `config` and `generation_config`, as fields of one object, and its tokenizer; no weights.

    Raises UsageError as `load_model` does.
    """
    _refuse_files(name)
    folder, source = _source(name, revision)
    with _told(name):
        config = AutoConfig.from_pretrained(folder, **source)
        refuse_unsupported(config.to_dict())
        tokenizer = AutoTokenizer.from_pretrained(folder, **source)
        try:
            generation = GenerationConfig.from_pretrained(folder, revision=revision)
        except OSError:  # a model need not have one
            generation = GenerationConfig.from_model_config(config)
    named = [tokenizer.eos_token_id, config.eos_token_id, generation.eos_token_id]
    ends = [end for one in named for end in (one if isinstance(one, list) else [one])]
    refuse_tokenizer(name, tokenizer, config.vocab_size, ends)
    return SimpleNamespace(config=config, generation_config=generation), tokenizer


def _refuse_files(name: str) -> None:
    """Raise UsageError for a local model that lacks files, has damaged ones or is of an unsupported kind."""
    place = Path(os.path.expanduser(name))
    if name == embedded.NAME or not place.exists():
        return
    found = Checkpoint.at(place)
    if found.config:
        refuse_unsupported(read_json(found.config))
    if found.generation:  # which transformers would pass over
        read_json(found.generation)


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Turn what loading may raise into UsageError, in one line."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        if not any(kind.__name__ in LOADING for kind in type(error).__mro__):
            raise
        raise UsageError(_why(name, error)) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from printing tables of keys, of which the first are named in one line."""
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)


def _source(name: str, revision: str | None) -> tuple[str, dict[str, Any]]:
    """Where transformers finds a model, and the arguments that say so."""
    safe: dict[str, Any] = {"trust_remote_code": False}
    if name == embedded.NAME:
        return str(embedded.folder()), safe
    name = os.path.expanduser(name)
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
    if isinstance(error, ImportError):
        return f"cannot load {name}: {text[:200]}"
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
