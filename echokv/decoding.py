"""Decoding on evicted caches: the one path for answers, lookaheads and oracle queries."""

from collections.abc import Sequence

from echokv.codecs import Codec
from echokv.errors import UsageError
from echokv.linear import quick
from echokv.prefilling import Prefill
from echokv.rotary import check_reach
from echokv.rows import Record, Rows
from echokv.selection import Selection
from echokv.session import Ahead, Made, Session, Stretch

ROOM = 32  # tokens that fit before the buffers double


def advance(*stretches: Stretch, record: Record | None = None) -> None:
    """Feed tokens to several sessions of one model in one batch, counting `steps` down.

    Rows leave the batch when they are over. Sessions in the same state are one row. Every row gets the tokens it would
    get alone, up to rounding: in half precision a near tie may fall the other way.

    record: see `Rows`.

    Raises UsageError for a session given twice, and for more tokens than a dynamic RoPE leaves room for.
    """
    if len({id(stretch.session) for stretch in stretches}) < len(stretches):
        raise UsageError("a session is given twice: open one for each row, Session(prefill, selection)")
    begun = [stretch for stretch in stretches if stretch.steps > 0]
    for one in begun:
        check_reach(one.session.prefill.model.config, one.session.prefill.end + len(one.session.fed) + one.steps)
    like = _alike(begun)
    active = {id(one.session): one for one in begun if id(one.session) not in like}
    if not active:
        return
    rows = Rows([one.session for one in active.values()], min(ROOM, max(one.steps for one in active.values())), record)
    with quick(rows.model, len(rows.sessions)):
        while rows.sessions:
            logits, best = rows.next()
            # One transfer for all rows: on a GPU each costs a wait for the device.
            tokens, running = best.tolist(), rows.running()
            for place, session in running:
                session.feed(logits[place], tokens[place])
                active[id(session)].steps -= 1
            rows.follow()
            rows.finish([place for place, session in running if active[id(session)].over])
    for one in begun:
        if id(one.session) in like:
            first = active[like[id(one.session)]]
            one.session.repeat(first.session)
            one.steps = first.steps


def _alike(stretches: Sequence[Stretch]) -> dict[int, int]:
    """By id, each session that will be fed what another is fed, and that other."""
    firsts: list[Stretch] = []
    like: dict[int, int] = {}
    for one in sorted(stretches, key=lambda stretch: not stretch.session.record):  # who records can be copied
        for first in firsts:
            if (one.steps, one.stop) == (first.steps, first.stop) and one.session.like(first.session):
                like[id(one.session)] = id(first.session)
                break
        else:
            firsts.append(one)
    return like


def alone(work: Ahead[Made]) -> Made:
    """Run work that decodes ahead to its end, feeding each stretch when it is asked for."""
    try:
        while True:
            advance(next(work))
    except StopIteration as end:
        made: Made = end.value
        return made


def decode(prefill: Prefill, selection: Selection, n: int, cache: Codec | None = None) -> list[int]:
    """The answer on a selected part of the cache, at most n tokens; a produced stop id is the last of them.

    cache: how that part is stored, such as Kivi(bits=2); None is as it is.
    """
    return decode_rows([Session(prefill, selection, codec=cache)], n)[0]


def decode_rows(sessions: Sequence[Session], n: int | Sequence[int], record: Record | None = None) -> list[list[int]]:
    """Decode several sessions of one model as one batch; at most n tokens each (or n[i] for session i).

    Raises UsageError for a session given twice.
    """
    limits = [n] * len(sessions) if isinstance(n, int) else list(n)
    advance(*(Stretch(s, s.missing(limit)) for s, limit in zip(sessions, limits, strict=True)), record=record)
    return [session.take(limit) for session, limit in zip(sessions, limits, strict=True)]
