"""KV-cache eviction for transformers models: one prefill, many policies, one way to decode."""

from echokv.errors import UsageError
from echokv.lookahead import EchoKV, Lookahead, Round
from echokv.models import load_model, load_tokenizer
from echokv.prefill import Needs, Prefill, prefill
from echokv.press import Press
from echokv.selection import Selection
from echokv.session import Session, decode_rows

__all__ = [
    "EchoKV",
    "Lookahead",
    "Needs",
    "Prefill",
    "Press",
    "Round",
    "Selection",
    "Session",
    "UsageError",
    "decode_rows",
    "load_model",
    "load_tokenizer",
    "prefill",
]
