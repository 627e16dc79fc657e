"""KVQuant with a calibration: worked by hand, against a naive twin, and what its file must be."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from baselines.streaming_llm import StreamingLLM
from echokv import KVQuantC, Selection, Session, UsageError, compress
from echokv.calibrated import Calibration
from echokv.packing import Entries, Origin
from echokv.shapes import Shape
from tests.models import ARCHITECTURES, prompt
from tests.policies import close, shared_prefill
from tests.storing import decodes_as_the_twin, fakes_answer_as_real
from tests.test_kvquant import turned, twin_line, twin_outliers, twin_turn, unturned
from tests.twin_model import Trace

Make = Callable[..., str]  # writes a calibration and returns its path


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """A file of random ranges, about as wide as the keys of a tiny model, and random points."""

    @cache
    def write(shape: tuple[int, int, int], share: float = 0.99, seed: int = 0, width: float = 2.0) -> str:
        generator = torch.Generator().manual_seed(seed)
        high, low = width * torch.rand(2, *shape, generator=generator)
        keys, values = (
            {bits: (2 * torch.rand(shape[0], 2**bits, generator=generator) - 1).sort().values for bits in (2, 4)}
            for _ in range(2)
        )
        path = tmp_path_factory.mktemp("calibration") / "c.safetensors"
        Calibration(-low, high, keys, values, share).save(path)
        return str(path)

    return write


# --- The naive twin -----------------------------------------------------------------------------------------


def twin_key(
    row: Sequence[float], low: Sequence[float], high: Sequence[float], points: Sequence[float], share: float
) -> list[float]:
    """A key before RoPE, coded and read back channel by channel."""
    middles = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
    halves = [(b - a) / 2 for a, b in zip(low, high, strict=True)]
    units = [(x - middle) / half for x, middle, half in zip(row, middles, halves, strict=True)]
    order = sorted(range(len(row)), key=lambda i: units[i])
    count = twin_outliers(len(row), share)
    made = list(row)
    for i in order[count : len(row) - count]:
        made[i] = middles[i] + halves[i] * min(points, key=lambda point: abs(point - units[i]))
    return made


def twin_head(rows: list[list[float]], codec: KVQuantC, kind: str, layer: int, group: int) -> list[list[float]]:
    """What a head stores of its kept keys before RoPE, or values, [token][channel]."""
    found = load_file(str(codec.file))
    points = found[f"{kind}.{codec.bits}"][layer].double().tolist()
    first, coded = rows[: codec.sinks], rows[codec.sinks :]
    if kind == "values":
        return first + [twin_line(row, points, codec.share) for row in coded]
    low, high = (found[name][layer, group].double().tolist() for name in ("low", "high"))
    return first + [twin_key(row, low, high, points, codec.share) for row in coded]


def twin_stored(whole: Trace, selection: Selection, codec: KVQuantC) -> Trace:
    """The trace with what each head keeps replaced by what it stores."""
    keys, values = [part.clone() for part in whole.keys], [part.clone() for part in whole.values]
    for layer, heads in enumerate(selection.positions()):
        for head, kept in enumerate(heads):
            places = kept.tolist()
            plain, own = twin_turn(whole.model, keys[layer][head, kept], places, back=True), values[layer][head, kept]
            made, other = (
                torch.tensor(twin_head(part.tolist(), codec, kind, layer, head), dtype=part.dtype).view_as(part)
                for kind, part in (("keys", plain), ("values", own))
            )
            keys[layer][head, kept[codec.sinks :]] = twin_turn(whole.model, made, places)[codec.sinks :]
            values[layer][head, kept] = other
    return replace(whole, keys=keys, values=values)


# --- By hand ------------------------------------------------------------------------------------------------


def test_a_key_by_hand(tmp_path: Path) -> None:
    """Ranges are -1 to 3: middle 1, half width 2. In its units the key is -2, -.9, -.5, .05, .5, .9, 1.1, 4; the first
    and the last are outliers, and of 1.1, which lies beyond its range as well, the outermost point is left."""
    points = torch.tensor([[-1.0, -0.25, 0.25, 1.0]])
    low, high = -torch.ones(1, 1, 8), 3 * torch.ones(1, 1, 8)
    Calibration(low, high, {2: points}, {2: points}, 0.99).save(tmp_path / "c")
    key = torch.tensor([[-3, -0.8, 0, 1.1, 2, 2.8, 3.2, 9]]).double()
    packed = KVQuantC(file=str(tmp_path / "c"), bits=2, sinks=0).pack(
        Entries(key, key, [1], Origin(0, [0], torch.tensor([5]), unturned))
    )
    close(packed.unpack()[0], [[-3, -1, 0.5, 1.5, 1.5, 3, 3, 9]], 1e-12)


def test_bytes_of_a_mistral_at_budget_128() -> None:
    """Of 123 coded tokens of 128 channels: codes; of a key and of a value two outliers of 4 bytes; a value's scale of 4
    bytes, a key's position of 4. Five tokens in full."""
    assert KVQuantC(file="c").bytes(128, 128, 2) == 123 * (2 * 64 + 2 * 8 + 4 + 4) + 5 * 2 * 256 == 21_256


# --- What holds of any --------------------------------------------------------------------------------------


@given(st.data())
def test_any_packing_is_the_naive_one(make: Make, data: st.DataObject) -> None:
    """Head by head as the twin has it, whichever KV head each is of, and as many bytes as the formula says."""
    share = data.draw(st.sampled_from([0.5, 0.8, 0.99, 1.0]))
    file = make((2, 3, 8), share, data.draw(st.integers(0, 3)))
    codec = KVQuantC(
        file=file, bits=data.draw(st.sampled_from([2, 4])), share=share, sinks=data.draw(st.integers(0, 6)),
        scales="model",
    )  # fmt: skip
    heads = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=4))
    lengths = [data.draw(st.integers(0, 12)) for _ in heads]
    size, turn = data.draw(st.sampled_from([1e-6, 1, 1e4])), data.draw(st.sampled_from([unturned, turned]))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 10**6)))
    keys, values = torch.randn(2, sum(lengths), 8, generator=generator, dtype=torch.float64) * size
    places, layer = torch.cat([torch.arange(n) * 3 for n in lengths]), data.draw(st.integers(0, 1))
    packed = codec.pack(Entries(keys, values, lengths, Origin(layer, heads, places, turn)))
    to = turn(places)
    for kind, full, made in zip(("keys", "values"), (to.undo(keys), values), packed.unpack(), strict=True):
        naive = [
            row
            for group, head in zip(heads, full.split(lengths), strict=True)
            for row in twin_head(head.tolist(), codec, kind, layer, group)
        ]
        wanted = torch.tensor(naive, dtype=torch.float64).view_as(full)
        scale = float(full.abs().max()) + 2 if full.numel() else 1.0
        close(made / scale, (to.turn(wanted) if kind == "keys" else wanted) / scale)
    assert packed.bytes == sum(codec.bytes(n, 8, 8) for n in lengths)


def test_a_channel_that_never_changed(tmp_path: Path) -> None:
    """It has no width: what it was comes back, and the first thing that differs is an outlier."""
    points = torch.tensor([[-1.0, -0.25, 0.25, 1.0]])
    flat, wide = torch.full((1, 1, 1), 0.5), torch.ones(1, 1, 7)
    ranges = torch.cat([flat, -wide], dim=2), torch.cat([flat, wide], dim=2)
    Calibration(*ranges, {2: points}, {2: points}, 0.99).save(tmp_path / "c")
    keys = torch.tensor([[x, 0.9, -0.9, 0.3, -0.3, 0.2, -0.2, 0.1] for x in (0.5, 0.75)])
    origin = Origin(0, [0], torch.tensor([0, 1]), lambda at: unturned(at)._replace(
        cos=torch.ones(2, 8), sin=torch.zeros(2, 8)
    ))  # fmt: skip
    made, _ = KVQuantC(file=str(tmp_path / "c"), bits=2, sinks=0).pack(Entries(keys, keys, [2], origin)).unpack()
    assert made[:, 0].tolist() == [0.5, 0.75]


# --- Decoding -----------------------------------------------------------------------------------------------

MODEL = (3, 2, 16)  # layers, KV heads and channels of the tiny models


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize(("bits", "share", "sinks"), [(4, 0.99, 5), (2, 0.8, 0), (2, 1.0, 5)])
def test_decoding_is_the_twins_on_what_is_stored(make: Make, name: str, bits: int, share: float, sinks: int) -> None:
    codec = KVQuantC(file=make(MODEL, share), bits=bits, share=share, sinks=sinks, scales="model")
    decodes_as_the_twin(name, codec, twin_stored)


@pytest.mark.parametrize("selected", range(8))
def test_fake_codes_answer_as_real_ones(make: Make, selected: int) -> None:
    fakes_answer_as_real(KVQuantC(file=make(MODEL), bits=2, scales="model"), selected, 20)


# --- The file, and wrong ones -------------------------------------------------------------------------------


def test_a_file_says_the_same_each_time(make: Make, tmp_path: Path) -> None:
    """Byte for byte, for its content is part of what answers are known by."""
    path = make(MODEL)
    Calibration.read(path).save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == Path(path).read_bytes()


def refused(codec: KVQuantC) -> str:
    """What is said of a codec for the tiny models."""
    with pytest.raises(UsageError) as told:
        codec.check_model(Shape(places=(0, 1, 2), groups=2, heads=4, dim=16))
    return str(told.value)


def test_files_that_do_not_fit(make: Make, tmp_path: Path) -> None:
    path = make(MODEL)
    assert f"KVQuantC.share is 0.9, and the ranges of {path} are for 0.99" in refused(KVQuantC(file=path, share=0.9))
    for name, told in ("none", "No such file or directory"), ("", "Is a directory"):
        assert refused(KVQuantC(file=str(tmp_path / name))) == f"{tmp_path / name}: {told}"
    (tmp_path / "text").write_text("no tensors")
    assert "text holds no calibration: make it by python -m eval.calibrate" in refused(
        KVQuantC(file=str(tmp_path / "text"))
    )
    whole = load_file(path)
    for changed, says in (
        ({name: part for name, part in whole.items() if name != "high"}, "holds no calibration"),
        ({name: part for name, part in whole.items() if not name.endswith(".2")}, "has points for 4 bits: make one"),
        (whole | {"keys.2": whole["keys.4"].clone()}, "does not have its points for every layer"),
        (whole | {"values.4": whole["values.4"][:2].clone()}, "does not have its points for every layer"),
        ({name: part for name, part in whole.items() if name != "keys.4"}, "does not have its points"),
    ):
        save_file(changed, tmp_path / "changed")
        assert says in refused(KVQuantC(file=str(tmp_path / "changed"), bits=2))


@pytest.mark.parametrize("shape", [(2, 2, 16), (3, 1, 16), (3, 2, 8)])
def test_a_file_of_another_shape(make: Make, shape: tuple[int, int, int]) -> None:
    said = "{} is of {} layers of {} KV heads of {} channels, the model has 3 layers of 2 KV heads of 16 channels: make"
    assert refused(KVQuantC(file=make(shape))).startswith(said.format(make(shape), *shape))
    p = shared_prefill("llama", 50)  # told before a prompt is read, and where a session is made of a prefill alone
    with pytest.raises(UsageError, match="make one of this model"):
        compress(p.model, list(prompt(50)), StreamingLLM(), 40, cache=KVQuantC(file=make(shape)))
    with pytest.raises(UsageError, match="make one of this model"):
        Session(p, StreamingLLM().select(p, 40), codec=KVQuantC(file=make(shape)))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "KVQuantC.file is missing; it must be a calibration, which python -m eval.calibrate MODEL makes"),
        ({"file": "c", "bits": 3}, "KVQuantC.bits is 3; it must be 2 or 4"),
        ({"file": 3}, "KVQuantC.file is 3; it must be a text or null"),
    ],
)
def test_wrong_settings(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        KVQuantC(**fields)
