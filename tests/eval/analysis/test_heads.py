"""The importance of heads: by hand, and from records of a tiny model to a run of HeadKV."""

import json
import math
from pathlib import Path
from statistics import fmean

import pytest
import torch

from eval import heads as door
from eval.analysis import heads
from eval.console.errors import UserError
from eval.planning.plan import Plan
from tests.eval.analyses import analyse
from tests.test_configs import composed


def test_one_step_by_hand() -> None:
    """Evidence at 4, 5 and 6; of the three keys with most attention 4 and 6 are evidence: (.5 + .1) / 3."""
    paid = {4: 0.5, 9: 0.3, 6: 0.1, 0: 0.05, 5: 0.03, 1: 0.02}
    keys = torch.tensor([[[math.log(paid.get(i, 1e-12))] for i in range(10)]], dtype=torch.float64)
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    found = heads.found_attention(one, keys, 1.0, [4, 5, 6])
    assert found.tolist() == [pytest.approx(0.2)]
    two = heads.found_attention(one.expand(1, 2, 1), keys, 1.0, [4, 5, 6])  # the first of two does not see key 9
    assert two.tolist() == [pytest.approx(0.2 + (0.5 + 0.1 + 0.05 * 0) / 0.7 / 3)]


def test_halves() -> None:
    alike = torch.arange(12.0).view(1, 3, 4).expand(6, 3, 4)
    assert heads.reliability(alike) == pytest.approx((1.0, 1.0))
    half, whole = heads.reliability(torch.rand(20, 3, 4, generator=torch.Generator().manual_seed(1)))
    assert whole == pytest.approx(2 * half / (1 + half))
    assert abs(half) < 0.9


def test_from_records_to_a_run(
    tiny_settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["analysis.lengths=[512]", "subset=syn_fact"]
    with pytest.raises(UserError, match=r"0 records count, at least 20 are needed: raise data\.records"):
        analyse("heads", tiny_settings, *more)
    monkeypatch.setattr(heads, "LEAST", 2)
    monkeypatch.setattr(heads, "RIGHT", -1.0)  # a model of random weights answers nothing
    analyse("heads", tiny_settings, *more)
    (path,) = tmp_path.rglob("heads.json")
    assert f"methods.headkv.importance={path}" in capsys.readouterr().out
    content, about = json.loads(path.read_text()), json.loads(path.with_suffix(".about.json").read_text())
    assert about["title"] == "tiny"
    assert about["runs"] == len(about["records"]) == len(content["0-0"]) == 2
    assert any(fmean(scores) > 0 for scores in content.values())

    run = [*tiny_settings, "method=headkv", "budget=64", "subset=syn_fact", f"methods.headkv.importance={path}"]
    (cell,) = Plan.of(composed(*run)).grid
    assert cell.fields["importance"].startswith("sha256:")
    moved = tmp_path / "elsewhere.json"
    moved.write_text(path.read_text())
    (other,) = Plan.of(composed(*run[:-1], f"methods.headkv.importance={moved}")).grid
    assert other.store.folder == cell.store.folder  # the content decides
    moved.write_text(json.dumps(content | {"0-0": [9.0]}))
    (other,) = Plan.of(composed(*run[:-1], f"methods.headkv.importance={moved}")).grid
    assert other.store.folder != cell.store.folder

    path.with_suffix(".about.json").write_text(json.dumps(about | {"model": {"name": "another"}, "title": "another"}))
    with pytest.raises(UserError, match=r"method headkv: importance=.*heads\.json is of another, this run of"):
        Plan.of(composed(*run))
    path.with_suffix(".about.json").write_text("{")
    with pytest.raises(UserError, match=r"cannot read .*heads\.about\.json: make .*heads\.json again"):
        Plan.of(composed(*run))


def test_what_headkv_asks_for(tiny_settings: list[str], tmp_path: Path) -> None:
    run = [*tiny_settings, "method=headkv", "budget=64", "subset=syn_fact"]
    with pytest.raises(UserError, match=r"method headkv: HeadKV\.importance is missing; it must be a file"):
        Plan.of(composed(*run))
    with pytest.raises(UserError, match=r"method headkv: cannot read .*none\.json: No such file"):
        Plan.of(composed(*run, f"methods.headkv.importance={tmp_path}/none.json"))
    assert Plan.of(composed(*run, "methods.headkv.heads=uniform")).grid


def test_other_data_is_refused(tiny_settings: list[str]) -> None:
    own = [word for word in tiny_settings if not word.startswith("data")]
    with pytest.raises(UserError, match="heads makes records of several lengths: it needs data=synthetic"):
        analyse("heads", own, "data=jsonl", "data.path=examples/records", "subset=hotpotqa")


@pytest.mark.parametrize("words", [[], ["data.records=3"], ["--help"]])
def test_a_model_is_named_first(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["heads", *words])
    with pytest.raises(UserError, match=r"name a model first: python -m eval\.heads smollm2"):
        door.begin()
