"""How rows decode together: several prompts, rows that are alike, and steps that are recorded and replayed."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from baselines.full import FullKV
from baselines.snapkv import SnapKV
from baselines.streaming_llm import StreamingLLM
from echokv import Prefill, Selection, Session, Stretch, UsageError, advance, decode, decode_rows, graphs, prefill
from echokv.decoding import ROOM
from echokv.graphs import Quicker, cuda_graph, step_recorder
from echokv.rows import Rows, Step
from tests.models import prompt, tiny
from tests.policies import EVERYTHING, POLICIES, close, shared_prefill

LENGTH = 200


def recorded(step: Step) -> Step:
    """The tensor operations of one step, to be repeated without the code that issued them: a CUDA graph's CPU twin.

    Recording runs the step, which a CUDA graph does not: the state is put back.
    """
    rows: Any = step.__self__  # type: ignore[attr-defined]
    places = (rows.tokens, rows.positions, rows.column, rows.number)
    before = [place.clone() for place in places]
    operations = make_fx(lambda _: step())(torch.zeros(1))
    for place, value in zip(places, before, strict=True):
        place.copy_(value)
    return lambda: operations(torch.zeros(1))


def opened(p: Prefill, record: bool = False) -> list[Session]:
    selections = [policy.press().select(p, 40 + row) for row, policy in enumerate(POLICIES.values())]
    return [Session(p, selection, record) for selection in [FullKV().select(p, None), *selections]]


def same(mine: list[Session], others: list[Session]) -> None:
    for one, other in zip(mine, others, strict=True):
        assert (one.fed, one.next_token) == (other.fed, other.next_token)
        for part, same_part in zip(one.queries, other.queries, strict=True):
            close(part, same_part)
        for part, same_part in zip(
            [*one.tail_keys, *one.tail_values], [*other.tail_keys, *other.tail_values], strict=True
        ):
            close(part, same_part)


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_recorded_steps_equal_steps(name: str) -> None:
    """Past the buffers' first size, with rows that leave at different times and come back."""
    p = shared_prefill(name, LENGTH)
    plain, replayed, taken = opened(p, record=True), opened(p, record=True), []

    def counted(step: Step) -> Step:
        repeat = recorded(step)

        def run() -> Any:
            taken.append(1)
            return repeat()

        return run

    for limits in ([3] * 10, [ROOM + 9 - row for row in range(10)]):
        advance(*(Stretch(session, n) for session, n in zip(plain, limits, strict=True)))
        advance(*(Stretch(session, n) for session, n in zip(replayed, limits, strict=True)), record=counted)
    same(replayed, plain)
    assert len(taken) > ROOM // 2  # most steps were replays


def test_rows_that_leave_one_by_one_are_recorded_anew_when_half_are_gone() -> None:
    """Ten rows that end at ten steps: not ten recordings."""
    p, made = shared_prefill("llama", LENGTH), []

    def noted(step: Step) -> Step:
        made.append(len(step.__self__.sessions))  # type: ignore[attr-defined]
        return recorded(step)

    limits = [4 + row for row in range(10)]
    plain, replayed = opened(p, record=True), opened(p, record=True)
    advance(*(Stretch(session, n) for session, n in zip(plain, limits, strict=True)))
    advance(*(Stretch(session, n) for session, n in zip(replayed, limits, strict=True)), record=noted)
    same(replayed, plain)
    assert made == [10, 5]


class NoGraph:
    """What torch offers of CUDA graphs on a machine whose memory is full."""

    def __init__(self, *_: object, pool: object = None) -> None:
        self.pool = pool

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.\n Tried to allocate")


def test_a_step_that_cannot_be_recorded_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    p = shared_prefill("llama", LENGTH)
    plain, replayed = opened(p), opened(p)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", NoGraph)
    monkeypatch.setattr(torch.cuda, "graph", NoGraph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    with pytest.warns(UserWarning, match="runs without a CUDA graph: CUDA out of memory. Tried to allocate"):
        found = decode_rows(replayed, 6, record=partial(graphless, device=torch.device("cuda", 0)))
    assert found == decode_rows(plain, 6)


def graphless(step: Step, device: torch.device) -> Step:
    """`cuda_graph`, whose attempt to record is undone: no capture holds the work back here."""
    rows: Any = step.__self__  # type: ignore[attr-defined]
    places = (rows.tokens, rows.positions, rows.column, rows.number)
    before = [place.clone() for place in places]
    made = cuda_graph(step, device)
    for place, value in zip(places, before, strict=True):
        place.copy_(value)
    return made


def test_step_waits_for_nothing() -> None:
    """No value of a tensor is needed to issue a step's operations: shapes are enough."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

    rows = Rows(opened(shared_prefill("llama", LENGTH), record=True), 4)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode, pytest.raises(DataDependentOutputException):
        int(torch.zeros(1) + 1)  # what this would catch
    rows.tokens, rows.positions = mode.from_tensor(rows.tokens), mode.from_tensor(rows.positions)
    rows.column, rows.number = mode.from_tensor(rows.column), mode.from_tensor(rows.number)
    with mode:
        _, best = rows.step()
    assert best.shape == (10,)


def test_rows_that_differ_in_the_pending_token_alone_stay_two() -> None:
    """It depends on what the last layer kept before a move, of which nothing else is left."""
    p = prefill(tiny("layers1"), torch.tensor(prompt(60)))
    whole, generator = FullKV().select(p, None), torch.Generator().manual_seed(0)

    def fed_once() -> Session:
        few = torch.stack([torch.randperm(60, generator=generator)[:5].sort().values for _ in range(p.groups)])
        session = Session(p, Selection.of([few], 60))
        advance(Stretch(session, 1))
        session.move(whole)
        return session

    sessions = [fed_once() for _ in range(8)]
    assert len({session.next_token for session in sessions}) > 2
    expected = [[session.next_token] for session in sessions]
    advance(*(Stretch(session, 4) for session in sessions))
    for session, (token,) in zip(sessions, expected, strict=True):
        assert session.fed[1] == token


def test_a_session_given_twice_is_refused() -> None:
    session = opened(shared_prefill("llama", LENGTH))[0]
    with pytest.raises(UsageError, match="a session is given twice"):
        decode_rows([session, session], 5)
    assert session.fed == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_graphs_equal_steps() -> None:
    model = tiny("llama").float().cuda()
    p = prefill(model, torch.tensor(prompt(LENGTH)), EVERYTHING)
    plain, replayed = opened(p), opened(p)
    limits = [70 - 5 * row for row in range(10)]
    assert decode_rows(replayed, limits, partial(cuda_graph, device=p.logits.device)) == decode_rows(plain, limits)


@dataclass
class Clock:
    """Seconds that steps, replays and recordings would take on some device."""

    step: float
    replay: float
    recording: float
    seconds: float = 0.0

    def now(self, _: torch.device) -> float:
        return self.seconds

    def spend(self, seconds: float, work: Callable[[], Any]) -> Any:
        self.seconds += seconds
        return work()

    def graph(self, step: Step, _: torch.device) -> Step:
        repeat = self.spend(self.recording, lambda: recorded(step.keywords["work"]))  # type: ignore[attr-defined]
        return lambda: self.spend(self.replay, repeat)


@pytest.mark.parametrize(
    ("clock", "quicker"),
    [
        (Clock(step=0.04, replay=0.01, recording=0.5), True),
        (Clock(step=0.04, replay=0.01, recording=1.0), False),  # not won back in 32 steps
        (Clock(step=0.01, replay=0.02, recording=0.0), False),
    ],
)
def test_steps_are_recorded_where_that_is_quicker(clock: Clock, quicker: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decided in the first batch that is long enough, for all that follow; the tokens are the same throughout."""
    monkeypatch.setattr(graphs, "now", clock.now)
    monkeypatch.setattr(graphs, "cuda_graph", clock.graph)
    told: list[str] = []
    record, p = Quicker(torch.device("cpu"), told.append), shared_prefill("llama", LENGTH)

    def timed(step: Step) -> Step:
        return record(partial(clock.spend, clock.step, work=step))

    for limit in (5, 25, 12):  # the first is over before anything is known
        begun = clock.seconds
        rows = [limit] * 5 + [limit + 4] * 5
        plain, tried = opened(p, record=True), opened(p, record=True)
        assert decode_rows(tried, rows, timed) == decode_rows(plain, rows)
        same(tried, plain)
        assert record.graphs == (None if limit == 5 else quicker)
    (line,) = told
    assert line.endswith("steps are recorded" if quicker else "steps run as they are")
    assert f"a decode step takes {clock.step * 1000:.1f} ms" in line
    # The last: 15 steps, of which the first after a change of the rows is not handed over, and two recordings.
    expected = 13 * clock.replay + 2 * clock.recording if quicker else 13 * clock.step
    assert clock.seconds - begun == pytest.approx(expected)


def test_a_step_that_cannot_be_recorded_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "cuda_graph", lambda step, _: step)  # what it returns after its warning
    record, p = Quicker(torch.device("cpu"), lambda _: None), shared_prefill("llama", LENGTH)
    assert decode_rows(opened(p), 20, record) == decode_rows(opened(p), 20)
    assert record.graphs is False


def test_graphs_are_for_one_cuda_device() -> None:
    """Asked for elsewhere they are refused; "auto" leaves the steps as they are."""
    model = tiny("llama")
    with pytest.raises(UsageError, match="this model is on cpu: leave it at auto"):
        step_recorder(True, model, print)
    assert step_recorder("auto", model, print) is None
    assert step_recorder(False, model, print) is None
    here = SimpleNamespace(config=model.config, device=torch.device("cuda", 0), parameters=lambda: [OnCuda()])
    made = step_recorder("auto", here, print)
    assert isinstance(made, Quicker)
    assert made.device == here.device
    assert step_recorder(True, here, print) is not None


class OnCuda:
    """A parameter of a model on a GPU."""

    device = torch.device("cuda", 0)


def test_rows_of_several_prompts_equal_rows_of_each() -> None:
    parts = [shared_prefill("mistral", length) for length in (LENGTH, 150, 233)]
    limits = [(5, 9, 13)[place] for place in range(3) for _ in range(10)]
    together = [session for p in parts for session in opened(p)]
    alone = [decode_rows([session], n)[0] for p, n in zip(parts, (5, 9, 13), strict=True) for session in opened(p)]
    assert decode_rows(together, limits) == alone


def rows_opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each batch from now on has."""
    counted: list[int] = []
    opened_before = Rows.__init__

    def watched(self: Rows, sessions: list[Session], *rest: Any) -> None:
        counted.append(len(sessions))
        opened_before(self, sessions, *rest)

    monkeypatch.setattr(Rows, "__init__", watched)
    return counted


def test_sessions_in_the_same_state_are_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    p = shared_prefill("llama", LENGTH)
    whole, some = FullKV().select(p, None), StreamingLLM().select(p, 40)
    presses = [StreamingLLM(), SnapKV(), StreamingLLM(), FullKV()]
    chosen = [whole, some, *(press.select(p, LENGTH) for press in presses), SnapKV().select(p, 40)]
    records = [False, True, False, True, False, False, True]
    alone = [Session(p, selection, record) for selection, record in zip(chosen, records, strict=True)]
    for session in alone:
        advance(Stretch(session, 6))
    counted = rows_opened(monkeypatch)
    together = [Session(p, selection, record) for selection, record in zip(chosen, records, strict=True)]
    advance(*(Stretch(session, 6) for session in together))
    same(together, alone)
    # Everything, five times over, is one row.
    assert counted == [3]
    # One has decoded on another cache, two are to go further than the others: these are states of their own.
    together[0].move(some)
    advance(Stretch(together[0], 1))
    together[0].move(whole)
    for session in (*together[1:], *alone[1:]):
        advance(Stretch(session, 1))
    counted.clear()
    advance(*(Stretch(session, n) for session, n in zip(together, [4, 4, 4, 4, 5, 5, 4], strict=True)))
    assert counted == [5]
    for session, n in zip(alone[1:], [4, 4, 4, 5, 5, 4], strict=True):
        advance(Stretch(session, n))
    same(together[1:], alone[1:])


def test_sessions_of_different_rules_are_not_alike() -> None:
    p = shared_prefill("llama", LENGTH)
    whole = FullKV().select(p, None)
    stops = replace(p, stop_ids=frozenset([decode(p, whole, 3)[2]]))
    one, other = Session(p, whole), Session(stops, whole)
    advance(Stretch(one, 8), Stretch(other, 8))
    assert (len(one.fed), len(other.fed)) == (8, 2)
