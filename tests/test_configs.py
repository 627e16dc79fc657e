"""Every configuration composes, resolves and instantiates."""

import itertools
from pathlib import Path

import pytest
from hydra.utils import instantiate

from echokv import Press
from eval.planning import settings
from eval.planning.settings import Settings

CONF = Path(__file__).parent.parent / "conf"


def names(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def composed(*overrides: str) -> Settings:
    return settings.composed(overrides)


def source(chosen: Settings) -> str:
    """The word that chooses the data."""
    return chosen.data.target.rpartition(".")[2].lower()


@pytest.mark.parametrize(("method", "preset"), list(itertools.product(names("method"), names("preset"))))
def test_method(method: str, preset: str) -> None:
    if method == "kvpress":
        pytest.importorskip("kvpress", reason="needs kvpress: see docs/library.md")
    config = composed(f"method={method}", f"preset={preset}")
    assert list(config.methods) == [method]
    assert isinstance(instantiate(config.methods[method], _convert_="all"), Press)


@pytest.mark.parametrize(("model", "preset"), list(itertools.product(names("model"), names("preset"))))
def test_model(model: str, preset: str) -> None:
    config = composed(f"model={model}", f"preset={preset}")
    assert config.model.label == model
    assert config.model.prompt_limit > 1000


@pytest.mark.parametrize("experiment", names("experiment"))
def test_experiment(experiment: str) -> None:
    config = composed(f"experiment={experiment}")
    for fields in config.methods.values():
        assert isinstance(instantiate(fields, _convert_="all"), Press)


def test_rivals_are_all_methods_that_need_no_file_and_no_other_package() -> None:
    config = composed("experiment=rivals")
    assert sorted(config.methods) == [name for name in names("method") if name not in ("headkv", "kvpress")]
    assert (config.budget, config.preset.name) == (composed("experiment=table3").budget, "equal_bytes")


@pytest.mark.parametrize("data", names("data"))
def test_data(data: str) -> None:
    assert source(composed(f"data={data}")) == data


def test_defaults() -> None:
    config = composed()
    assert (config.model.label, config.budget, source(config)) == ("smollm2", (128,), "synthetic")
    assert list(config.methods) == ["echokv"]
    assert config.preset.name == "paper"


def test_paper_preset_is_the_published_protocol() -> None:
    methods = composed("method=[streamingllm,h2o,snapkv,pyramidkv,laq,echokv]").methods
    assert {name: methods[name]["granularity"] for name in methods} == {
        "streamingllm": "query_head",
        "h2o": "query_head",
        "snapkv": "query_head",
        "pyramidkv": "query_head",
        "laq": "query_head",
        "echokv": "kv_head",
    }
    assert methods["h2o"]["queries"] == "window"
    assert (methods["laq"]["workspace"], methods["laq"]["mask"]) == (1024, "official")


def test_equal_bytes_selects_per_kv_head() -> None:
    methods = composed("method=[streamingllm,h2o,snapkv,pyramidkv,laq,echokv]", "preset=equal_bytes").methods
    assert {settings["granularity"] for settings in methods.values()} == {"kv_head"}
    assert methods["pyramidkv"]["total"] == "exact"
    assert methods["h2o"]["queries"] == "all"


def test_context_only_is_equal_bytes_but_for_the_question() -> None:
    one, other = (composed(f"preset={name}").preset.model_dump() for name in ("equal_bytes", "context_only"))
    assert {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)} == {"name", "question"}
    assert (one["question"], other["question"]) == ("within", "after")


def test_one_yaml_field_can_be_set_from_the_command_line() -> None:
    assert composed("methods.echokv.steps=16").methods["echokv"]["steps"] == 16


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], "synthetic"),
        (["model=mistral"], "longbench"),
        (["model=qwen", "data=jsonl"], "jsonl"),
        (["model=mistral", "experiment=demo"], "synthetic"),
        (["experiment=table3", "model=smollm2", "data=jsonl"], "jsonl"),
    ],
)
def test_large_models_read_longbench_unless_told_otherwise(overrides: list[str], expected: str) -> None:
    assert source(composed(*overrides)) == expected
