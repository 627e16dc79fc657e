"""Quantised caches: worked by hand, against a naive twin, and what must hold of any of them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from baselines.full import FullKV
from baselines.snapkv import SnapKV
from echokv import Kivi, Prefill, Selection, Session, UsageError, decode, decode_rows
from echokv.further import feed
from echokv.packing import Entries, Part, pack, unpack
from tests.models import ARCHITECTURES
from tests.policies import close, shared_prefill, trace
from tests.storing import decodes_as_the_twin, fakes_answer_as_real
from tests.test_ragged import LENGTH, rows_of
from tests.twin_model import Trace, forward


def keys_of(rows: Sequence[Sequence[float]], codec: Kivi, dtype: torch.dtype = torch.float32) -> Part:
    """Keys of one head, a channel each row, packed."""
    keys = torch.tensor(rows, dtype=dtype).T.contiguous()
    made: Part = codec.pack(Entries(keys, keys, [len(keys)])).keys  # type: ignore[attr-defined]
    return made


def four(row: Sequence[float]) -> list[list[float]]:
    """Four channels alike, so that codes of two bits fill a byte."""
    return [list(row)] * 4


# --- The naive twin -----------------------------------------------------------------------------------------


def twin_group(numbers: list[float], bits: int) -> list[float]:
    """A group, quantised and read back, number by number."""
    low, high = min(numbers), max(numbers)
    scale = (high - low) / (2**bits - 1)
    if scale == 0:
        return list(numbers)
    return [min(max(round((x - low) / scale), 0), 2**bits - 1) * scale + low for x in numbers]


def twin_head(rows: list[list[float]], codec: Kivi, kind: str) -> list[list[float]]:
    """What one head stores of its kept keys or values, [token][channel]."""
    n, made = len(rows), [list(row) for row in rows]
    last = n % codec.residual if codec.rule == "kivi" and kind == "keys" else min(codec.residual, n)
    coded = n - last
    if kind == "values":
        for token in range(coded):
            for first in range(0, len(rows[0]), codec.group):
                channels = slice(first, first + codec.group)
                made[token][channels] = twin_group(rows[token][channels], codec.bits)
        return made
    for first in range(0, coded, codec.group):
        tokens = range(first, min(first + codec.group, coded))
        if codec.partial == "full" and len(tokens) < codec.group:
            continue
        for channel in range(len(rows[0])):
            column = twin_group([rows[token][channel] for token in tokens], codec.bits)
            for token, value in zip(tokens, column, strict=True):
                made[token][channel] = value
    return made


def twin_stored(whole: Trace, selection: Selection, codec: Kivi) -> Trace:
    """The trace with what each head keeps replaced by what it stores; heads keep what they keep elsewhere."""
    keys, values = [part.clone() for part in whole.keys], [part.clone() for part in whole.values]
    for layer, heads in enumerate(selection.positions()):
        assert len(heads) == len(keys[layer])
        for head, kept in enumerate(heads):
            for parts, kind in ((keys, "keys"), (values, "values")):
                if len(kept):
                    parts[layer][head, kept] = torch.tensor(
                        twin_head(parts[layer][head, kept].tolist(), codec, kind), dtype=parts[layer].dtype
                    )
    return replace(whole, keys=keys, values=values)


CODECS = [
    Kivi(bits=2, group=8, scales="model"),
    Kivi(bits=4, group=16, scales="model"),
    Kivi(bits=2, group=4, residual=10, scales="model"),
    Kivi(bits=8, group=8, residual=16, rule="kivi", scales="model"),
    Kivi(bits=4, group=8, partial="full", scales="model"),
    Kivi(bits=1, group=16, scales="model"),
]


# --- By hand ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "bits", "codes", "back"),
    [
        ([0, 1, 2, 6], 2, [0, 0, 1, 3], [0, 0, 2, 6]),
        ([-3, 0, 1, 3], 2, [0, 2, 2, 3], [-3, 1, 1, 3]),
        ([0, 1, 2, 6], 4, [0, 2, 5, 15], [0, 0.8, 2, 6]),
        ([5, 5, 5, 5], 2, [0, 0, 0, 0], [5, 5, 5, 5]),
    ],
)
def test_a_group_by_hand(row: list[float], bits: int, codes: list[int], back: list[float]) -> None:
    made = keys_of(four(row), Kivi(bits=bits, group=4, scales="model"))
    assert unpack(made.codes, bits)[:, 0].tolist() == codes
    close(made.unpack()[:, 0], back, 1e-6)


def test_a_half_scale_moves_a_tie() -> None:
    """0.4 in float16 is a little less: 1 / 0.4 is no tie any longer."""
    made = keys_of(four([0, 1, 2, 6]), Kivi(bits=4, group=4, scales="float16"))
    assert unpack(made.codes, 4)[:, 0].tolist() == [0, 3, 5, 15]


@pytest.mark.parametrize(
    ("bits", "group", "bytes_"),
    [
        (16, 32, 16_777_216),
        (2, 32, 3_145_728),
        (2, 64, 2_621_440),
        (2, 128, 2_359_296),
        (4, 32, 5_242_880),
        (4, 64, 4_718_592),
        (4, 128, 4_456_448),
    ],
)
def test_bytes_of_a_mistral_at_budget_128(bits: int, group: int, bytes_: int) -> None:
    assert 32 * 8 * Kivi(bits=bits, group=group).bytes(128, 128, 2) == bytes_


@pytest.mark.parametrize(
    ("kept", "bytes_"), [(128, 9_961_472), (256, 13_107_200), (512, 19_398_656), (1024, 31_981_568)]
)
def test_bytes_under_kivis_own_residual(kept: int, bytes_: int) -> None:
    assert 32 * 8 * Kivi(bits=2, residual=128, rule="kivi").bytes(kept, 128, 2) == bytes_


def test_codes_side_by_side() -> None:
    codes = torch.tensor([[1, 2, 3, 0, 3, 3, 0, 0]], dtype=torch.uint8)
    assert pack(codes, 2).tolist() == [[0b00111001, 0b00001111]]
    assert pack(codes, 4).tolist() == [[0x21, 0x03, 0x33, 0x00]]


# --- What holds of any --------------------------------------------------------------------------------------


@given(st.sampled_from([1, 2, 4, 8]), st.data())
def test_codes_come_back(bits: int, data: st.DataObject) -> None:
    rows, width = data.draw(st.integers(0, 5)), 8 * data.draw(st.integers(1, 4))
    code = st.integers(0, 2**bits - 1)
    drawn = data.draw(st.lists(st.lists(code, min_size=width, max_size=width), min_size=rows, max_size=rows))
    codes = torch.tensor(drawn, dtype=torch.uint8).view(rows, width)
    packed = pack(codes, bits)
    assert packed.shape == (rows, width * bits // 8)
    assert torch.equal(unpack(packed, bits), codes)


@st.composite
def packings(draw: st.DrawFn) -> tuple[Kivi, Entries]:
    """Any codec and what heads of unequal length keep; half of the time with few values, so that groups are equal."""
    group = draw(st.sampled_from([1, 2, 4, 8]))
    rule = draw(st.sampled_from(["last", "kivi"]))
    codec = Kivi(
        bits=draw(st.sampled_from([1, 2, 4, 8])),
        group=group,
        residual=draw(st.integers(rule == "kivi", 9)),
        rule=rule,
        partial=draw(st.sampled_from(["short", "full"])),
        scales="model",
    )
    lengths = draw(st.lists(st.integers(0, 21), min_size=1, max_size=4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    shape = (2, sum(lengths), 8)
    if draw(st.booleans()):
        keys, values = torch.randn(shape, generator=generator, dtype=torch.float64) * draw(
            st.sampled_from([1e-6, 1, 1e4])
        )
    else:
        keys, values = torch.randint(0, 2, shape, generator=generator).double()
    return codec, Entries(keys, values, lengths)


@given(packings())
def test_any_packing_is_the_naive_one(drawn: tuple[Kivi, Entries]) -> None:
    """Head by head as the twin has it, off by half a step at most, and as many bytes as the formula says."""
    codec, entries = drawn
    packed = codec.pack(entries)
    for kind, full, made in zip(("keys", "values"), (entries.keys, entries.values), packed.unpack(), strict=True):
        heads = full.split(list(entries.lengths))
        naive = [row for head in heads for row in twin_head(head.tolist(), codec, kind)]
        assert made.isfinite().all()
        part = getattr(packed, kind)
        step = part.scale.max() if len(part.scale) else 0.0
        if len(full):
            assert (made - full).abs().max() <= step / 2 * (1 + 1e-9) + 1e-12
            close(made, naive)
    assert packed.bytes == sum(codec.bytes(n, 8, 8) for n in entries.lengths)


@given(packings())
def test_a_head_is_packed_as_if_alone(drawn: tuple[Kivi, Entries]) -> None:
    """Groups never cross heads, and nothing is padded."""
    codec, entries = drawn
    keys, values = codec.pack(entries).unpack()
    first = 0
    for n in entries.lengths:
        own = slice(first, first + n)
        alone = codec.pack(Entries(entries.keys[own], entries.values[own], [n])).unpack()
        assert torch.equal(alone[0], keys[own])
        assert torch.equal(alone[1], values[own])
        first += n


def test_sixteen_bits_are_the_identity() -> None:
    p = shared_prefill("llama", LENGTH)
    for selection in rows_of(p):
        session, plain = Session(p, selection, codec=Kivi(bits=16, group=16)), Session(p, selection)
        assert session.bytes == selection.bytes(p)
        for layer in range(p.layers):
            seen = selection.indices[layer] >= 0
            for mine, other in zip(session.kept(layer), plain.kept(layer), strict=True):
                assert torch.equal(mine[seen], other[seen])


def test_values_commute_with_the_gather_and_keys_do_not() -> None:
    """A group of values is within a token; one of keys is of whichever tokens were kept."""
    p, codec = shared_prefill("llama", LENGTH), Kivi(bits=2, group=16, scales="model")
    selection = SnapKV().select(p, 48)
    before = Session(p, FullKV().select(p, None), codec=codec)
    after = Session(p, selection, codec=codec)
    for layer, index in enumerate(selection.indices):
        at = index[..., None].expand(-1, -1, p.keys[0].shape[-1])
        (all_keys, all_values), (keys, values) = before.kept(layer), after.kept(layer)
        assert torch.equal(values, all_values.gather(1, at))
        assert not torch.allclose(keys, all_keys.gather(1, at))


# --- Decoding -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: f"{codec.label}-{codec.residual}-{codec.partial}")
def test_decoding_is_the_twins_on_what_is_stored(name: str, codec: Kivi) -> None:
    decodes_as_the_twin(name, codec, twin_stored)


@pytest.mark.parametrize("selected", range(8))
def test_fake_codes_answer_as_real_ones(selected: int) -> None:
    fakes_answer_as_real(Kivi(bits=2, group=16, scales="model"), selected, 40)


def test_rows_of_all_kinds_decode_together_as_alone() -> None:
    p = shared_prefill("llama", LENGTH)
    codecs = [None, Kivi(bits=2, group=16), Kivi(bits=4, group=8, residual=20), Kivi(bits=2, group=16, fake=True)]
    limits = [(7 * row) % 41 + 5 for row in range(32)]

    def sessions() -> list[Session]:
        return [Session(p, selection, codec=codec) for codec in codecs for selection in rows_of(p)]

    together = decode_rows(sessions(), limits)
    assert together == [decode_rows([one], limit)[0] for one, limit in zip(sessions(), limits, strict=True)]


def test_a_question_is_fed_to_what_is_stored() -> None:
    p, whole = shared_prefill("llama", LENGTH), trace("llama", LENGTH)
    codec, selection = Kivi(bits=2, group=16, scales="model"), SnapKV().select(p, 48)
    session = Session(p, selection, codec=codec)
    kept = [[head.tolist() for head in layer] for layer in selection.positions()]
    expected = forward(whole.model, [5, 6, 7], twin_stored(whole, selection, codec), kept)
    close(feed(session, [5, 6, 7]), expected.logits, 1e-8)


def test_a_cache_that_moves_is_packed_anew() -> None:
    p, codec = shared_prefill("llama", LENGTH), Kivi(bits=2, group=16)
    one, other = SnapKV().select(p, 48), SnapKV().select(p, 64)
    session = Session(p, one, codec=codec)
    session.move(other)
    assert session.bytes == Session(p, other, codec=codec).bytes
    assert decode(p, other, 5, cache=codec) == decode_rows([session], 5)[0]


# --- Wrong settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"bits": 3}, "Kivi.bits is 3; it must be 1, 2, 4, 8, or 16"),
        ({"bits": "two"}, "Kivi.bits is 'two'; it must be a whole number"),
        ({"group": 0}, "Kivi.group is 0; it must be at least 1"),
        ({"residual": -1}, "Kivi.residual is -1; it must be at least 0"),
        ({"rule": "kivi"}, "Kivi.residual is 0; under rule=kivi it must be at least 1"),
        ({"rule": "first"}, "Kivi.rule is 'first'; it must be last or kivi"),
    ],
)
def test_wrong_settings(fields: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Kivi(**fields)  # type: ignore[arg-type]


def test_a_group_that_does_not_divide() -> None:
    p: Prefill = shared_prefill("llama", LENGTH)
    with pytest.raises(
        UsageError, match=r"Kivi.group is 12, which does not divide this model's 16 channels .* group=8"
    ):
        decode(p, SnapKV().select(p, 48), 5, cache=Kivi(group=12))


def test_values_beyond_half_precision() -> None:
    huge = torch.full((4, 4), 1e6)
    with pytest.raises(UsageError, match="too large for scales in float16"):
        Kivi(group=4).pack(Entries(huge, huge, [4]))
    close(Kivi(group=4, scales="model").pack(Entries(huge, huge, [4])).unpack()[0], huge)
