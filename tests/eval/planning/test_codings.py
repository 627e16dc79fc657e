"""Codecs in a run: what answers are known by, and what a row is called."""

from pathlib import Path
from typing import Any

import pytest

from eval.console.errors import UserError
from eval.planning.codings import codings
from eval.planning.plan import Plan
from eval.tables import naming
from tests.test_configs import composed


def plan(tiny_folder: Path, tmp_path: Path, *words: str) -> Plan:
    base = (f"model.name={tiny_folder}", "subset=syn_fact", "limit=1", "data.length=512", f"results={tmp_path}")
    return Plan.of(composed(*base, *words))


def test_without_a_codec_an_identity_is_what_it_was(tiny_folder: Path, tmp_path: Path) -> None:
    """Answers that are stored stay valid: nothing of codecs is in what they are known by."""
    (plain,) = plan(tiny_folder, tmp_path, "method=snapkv").grid
    (said,) = plan(tiny_folder, tmp_path, "method=snapkv", "cache=none").grid
    (coded,) = plan(tiny_folder, tmp_path, "method=snapkv", "cache=kivi").grid
    assert plain.store.key == said.store.key
    assert set(plain.store.key.identity) == {"data", "model", "method", "budget", "protocol"}
    about = dict(coded.store.key.identity)
    assert about.pop("cache") == {
        "name": "KIVI-2", "_target_": "echokv.codecs.Kivi", "code": None, "coding": 1, "fake": False, "bits": 2,
        "group": 32, "residual": 0, "rule": "last", "partial": "short", "scales": "float16",
    }  # fmt: skip
    assert about == plain.store.key.identity


def test_every_field_makes_another_run(tiny_folder: Path, tmp_path: Path) -> None:
    changes = ["bits=4", "group=16", "residual=8", "partial=full", "scales=model", "fake=true"]
    runs = [plan(tiny_folder, tmp_path, "method=snapkv", "cache=kivi", *(f"cache.{one}" for one in some)).grid[0]
            for some in ([], *([one] for one in changes), ["residual=8", "rule=kivi"])]  # fmt: skip
    assert len({run.store.folder for run in runs}) == len(changes) + 2


def test_sixteen_bits_are_no_codec(tiny_folder: Path, tmp_path: Path) -> None:
    """Whatever the other fields are: the answers of before there were codecs, and one row of them."""
    words = (tiny_folder, tmp_path, "method=snapkv")
    (plain,) = plan(*words).grid
    (cell,) = plan(*words, "cache=kivi", "cache.bits=16", "cache.group=[8,16]").grid
    assert (cell.label, cell.store.folder) == (plain.label, plain.store.folder)


def test_rows_of_several_codecs_share_their_policy(tiny_folder: Path, tmp_path: Path) -> None:
    grid = plan(
        tiny_folder, tmp_path, "method=[full,snapkv]", "budget=[64,128]", "cache=kivi", "cache.bits=[16,2]"
    ).grid
    assert [cell.label for cell in grid] == [
        "full", "full + KIVI-2", "snapkv 64", "snapkv 128", "snapkv + KIVI-2 64", "snapkv + KIVI-2 128",
    ]  # fmt: skip
    assert len({id(cell.press) for cell in grid}) == 2


@pytest.mark.parametrize(
    ("caches", "titles"),
    [
        ([None, {"name": "KIVI-2"}], ["EchoKV", "EchoKV + KIVI-2"]),
        ([{"name": "KIVI-2"}], ["EchoKV + KIVI-2"]),
        ([{"name": "KIVI-2", "group": 32}, {"name": "KIVI-2", "group": 64}, {"name": "KIVI-4", "group": 64}],
         ["EchoKV + KIVI-2 (group=32)", "EchoKV + KIVI-2 (group=64)", "EchoKV + KIVI-4"]),
    ],
)  # fmt: skip
def test_rows_are_called_by_what_stores_them(caches: list[dict[str, Any] | None], titles: list[str]) -> None:
    grid = [("echokv", {"steps": 8} | ({"cache": one} if one else {})) for one in caches]
    assert [name.title for name in naming.names(grid)] == titles


def test_a_codec_and_a_setting_are_both_named() -> None:
    grid = [("echokv", {"steps": steps, "cache": {"name": "KIVI-2"}}) for steps in (4, 8)]
    assert [name.title for name in naming.names(grid)] == ["EchoKV + KIVI-2 (steps=4)", "EchoKV + KIVI-2 (steps=8)"]


def test_a_missing_file_is_told_before_the_model_is_looked_for(tmp_path: Path) -> None:
    for words in ("cache=kvquant_c", "cache.file=/nowhere"), ("method=headkv", "methods.headkv.importance=/nowhere"):
        with pytest.raises(UserError, match="cannot read /nowhere: No such file"):
            Plan.of(composed("model.name=/models/none", "subset=syn_fact", f"results={tmp_path}", *words))


def test_a_class_that_is_no_codec_is_refused() -> None:
    with pytest.raises(UserError, match="is no Codec"):
        codings({"_target_": "builtins.dict"})
    with pytest.raises(UserError, match="there is no class"):
        codings({"_target_": "echokv.codecs.Kiwi"})


def test_a_kvquant_is_known_by_its_fields(tiny_folder: Path, tmp_path: Path) -> None:
    (cell,) = plan(tiny_folder, tmp_path, "method=snapkv", "cache=kvquant", "cache.bits=2").grid
    assert cell.label == "snapkv + KVQuant-p-2 128"
    assert cell.store.key.identity["cache"] == {
        "name": "KVQuant-p-2", "_target_": "echokv.kvquant.KVQuant", "code": None, "coding": 1, "fake": False,
        "bits": 2, "share": 0.99, "sinks": 5, "points": "nf", "scales": "float16",
    }  # fmt: skip
