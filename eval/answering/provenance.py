"""What made the answers of one process, kept beside them."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from echokv.causal import kernel
from echokv.installed import INSTALLED, ROOT
from eval.inputs.examples import Data
from eval.planning.settings import Settings

VERSIONS = (
    "torch",
    "transformers",
    "tokenizers",
    "datasets",
    "hydra-core",
    "numpy",
    "pandas",
    "rouge",
    "rapidfuzz",
)


def provenance(settings: Settings, model: Any, inputs: Data) -> dict[str, Any]:
    """What made an answer: configuration, versions, code, device. Local paths are cut to their last name."""
    cuda = torch.cuda.is_available() and str(model.device).startswith("cuda")
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": without_paths(settings.model_dump(mode="json", by_alias=True, exclude={"results"})),
        "sources": inputs.sources,
        "examples": inputs.sizes,
        "revision": getattr(model.config, "_commit_hash", None),
        "versions": {name: version(name) for name in VERSIONS} | {"python": platform.python_version()},
        "code": code_version(),
        "device": torch.cuda.get_device_name() if cuda else f"{processor()}, {torch.get_num_threads()} threads",
        "attention": kernel(model),
        "seed": None,  # greedy decoding draws nothing at random
    }


def processor() -> str:
    """The processor's name, as Linux tells it; its maker decides how few rows are multiplied (`echokv.linear`)."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def without_paths(value: Any) -> Any:
    """Settings whose local paths are cut to their last name: they may tell a user's name."""
    if isinstance(value, dict):
        return {key: without_paths(one) for key, one in value.items()}
    if isinstance(value, list):
        return [without_paths(one) for one in value]
    return Path(value).name if isinstance(value, str) and value.startswith(("/", "~", ".")) else value


def code_version() -> dict[str, Any]:
    """Commit of the working tree and whether it has changes; the version of an installed wheel; empty of neither."""
    if INSTALLED:
        return {"version": version("echokv")}
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
        changes = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"commit": commit.stdout.strip(), "dirty": bool(changes.stdout.strip())}
