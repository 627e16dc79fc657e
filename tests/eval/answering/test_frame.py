"""A run as a data frame says what the command stores."""

from pathlib import Path

import pytest

from eval.answering.frame import evaluate
from eval.console.errors import UserError
from eval.inputs.examples import by_subset
from eval.planning.plan import Plan
from eval.planning.settings import composed


def test_a_line_for_each_example_and_row(tiny_settings: list[str], tmp_path: Path) -> None:
    words = [*tiny_settings, "method=[full,snapkv,echokv]", "budget=[64,96]", "methods.echokv.steps=[2,4]"]
    words += ["subset=[syn_fact,syn_code]", "limit=1"]
    frame = evaluate(*words)
    assert len(frame) == 2 * (1 + 2 + 4)
    assert list(dict.fromkeys(frame["method"])) == ["full", "snapkv", "echokv steps=2", "echokv steps=4"]
    assert frame.loc[frame["method"] == "full", "budget"].isna().all()
    assert set(frame["budget"].dropna()) == {64, 96}
    assert frame["score"].between(0, 100).all()
    plan = Plan.of(composed(words))
    for name in by_subset(plan.data.examples):
        for cell in plan.grid:
            ((key, stored),) = cell.store.answers(name).items()
            same = frame[(frame["dataset"] == name) & (frame["method"] == cell.row)]
            same = same[same["budget"].isna() if cell.budget is None else same["budget"] == cell.budget]
            ((_, line),) = same.iterrows()
            assert (line["_id"], line["pred"], line["bytes"]) == (key, stored["pred"], stored["bytes"])
    assert evaluate(*words).equals(frame)  # from the store


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["method=snapkv", "budget=8"], "budget 8 is too small for SnapKV"),
        (["method=snapk"], "did you mean snapkv"),
        (["budget=[128"], "cannot read"),
        (["colour=red"], "unknown setting"),
        (["inspect=1"], "answers none"),
        (["shard=5/9"], "holds no example"),
        (["record.selections=true", "preset=context_only"], "use preset.question=within"),
    ],
)
def test_what_makes_no_answers_is_one_line(words: list[str], said: str, tiny_settings: list[str]) -> None:
    with pytest.raises(UserError, match=said) as caught:
        evaluate(*tiny_settings, "subset=syn_fact", *words)
    assert "\n" not in str(caught.value)
