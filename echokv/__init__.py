"""KV-cache eviction for transformers models: one prefill, many policies, one way to decode."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from echokv.errors import UsageError

if TYPE_CHECKING:
    from echokv.codecs import Codec, Kivi
    from echokv.compressing import Compressed, compress
    from echokv.decoding import advance, decode, decode_rows
    from echokv.kvquant import KVQuant
    from echokv.kvquant_calibrated import KVQuantC
    from echokv.lookahead import EchoKV, Lookahead, Round
    from echokv.models import load_model, load_tokenizer
    from echokv.prefilling import Needs, Prefill, prefill
    from echokv.press import Press
    from echokv.selection import Selection
    from echokv.session import Session, Stretch

__all__ = [
    "Codec",
    "Compressed",
    "EchoKV",
    "KVQuant",
    "KVQuantC",
    "Kivi",
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
    "compress",
    "decode",
    "decode_rows",
    "load_model",
    "load_tokenizer",
    "prefill",
]

_HOMES = {
    "Codec": "codecs",
    "Compressed": "compressing",
    "EchoKV": "lookahead",
    "KVQuant": "kvquant",
    "KVQuantC": "kvquant_calibrated",
    "Kivi": "codecs",
    "Lookahead": "lookahead",
    "Needs": "prefilling",
    "Prefill": "prefilling",
    "Press": "press",
    "Round": "lookahead",
    "Selection": "selection",
    "Session": "session",
    "Stretch": "session",
    "advance": "decoding",
    "compress": "compressing",
    "decode": "decoding",
    "decode_rows": "decoding",
    "load_model": "models",
    "load_tokenizer": "models",
    "prefill": "prefilling",
}


def __getattr__(name: str) -> Any:
    """Every name but the error's comes with its first use: torch and transformers' models take seconds to import."""
    if name not in _HOMES:
        raise AttributeError(f"module 'echokv' has no attribute '{name}'")
    found = globals()[name] = getattr(import_module(f"echokv.{_HOMES[name]}"), name)
    return found
