"""KV-cache eviction for transformers models: one prefill, many policies, one way to decode."""

from typing import TYPE_CHECKING, Any

from echokv.decoding import advance, decode, decode_rows
from echokv.errors import UsageError
from echokv.lookahead import EchoKV, Lookahead, Round
from echokv.prefill import Needs, Prefill, prefill
from echokv.press import Press
from echokv.selection import Selection
from echokv.session import Session, Stretch

if TYPE_CHECKING:
    from echokv.models import load_model, load_tokenizer

__all__ = [
    "EchoKV",
    "Lookahead",
    "Needs",
    "Prefill",
    "Press",
    "Round",
    "Selection",
    "Session",
    "Stretch",
    "UsageError",
    "advance",
    "decode",
    "decode_rows",
    "load_model",
    "load_tokenizer",
    "prefill",
]


def __getattr__(name: str) -> Any:
    """Loading needs transformers' models, which take as long to import as torch: they come with the first use."""
    if name not in ("load_model", "load_tokenizer"):
        raise AttributeError(f"module 'echokv' has no attribute '{name}'")
    from echokv import models

    return getattr(models, name)
