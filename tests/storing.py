"""What must hold of any codec: rows of it decode as the twin does on what is stored, and a fake one as the real one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from baselines.full import FullKV
from baselines.snapkv import SnapKV
from echokv import Selection, Session, decode_rows
from tests.policies import close, shared_prefill, trace
from tests.test_ragged import LENGTH, chosen, rows_of
from tests.twin_model import Trace
from tests.twin_model import decode as twin_decode


def decodes_as_the_twin(name: str, codec: Any, stored: Callable[[Trace, Selection, Any], Trace]) -> None:
    """stored: the codec's twin, the trace with what each head keeps replaced by what it stores."""
    p, whole = shared_prefill(name, LENGTH), trace(name, LENGTH)
    for selection in (FullKV().select(p, None), SnapKV().select(p, 48), chosen(p, [3, 90, 17, 40, 0], seed=1)):
        kept = [[head.tolist() for head in layer] for layer in selection.positions()]
        tokens, queries = twin_decode(stored(whole, selection, codec), kept, 6)
        session = Session(p, selection, record=True, codec=codec)
        assert decode_rows([session], 6) == [tokens]
        for mine, other in zip(session.queries, queries, strict=True):
            close(mine, other, 1e-8)


def fakes_answer_as_real(codec: Any, selected: int, n: int) -> None:
    """Heads of unequal length, per KV head and per query head; and what is stored is what is counted."""
    p = shared_prefill("llama", LENGTH)
    selection = rows_of(p)[selected]
    real, fake = (Session(p, selection, record=True, codec=one) for one in (codec, replace(codec, fake=True)))
    assert decode_rows([real], n) == decode_rows([fake], n)
    for mine, other in zip(real.queries, fake.queries, strict=True):
        close(mine, other)
    assert real.bytes == fake.bytes == sum(codec.bytes(n, 16, 8) for layer in selection.kept for n in layer)
