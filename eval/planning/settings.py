"""The settings of a run, typed: what conf/config.yaml, the chosen YAMLs and the command line compose to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer

from eval.console import conf
from eval.console.conf import CONF
from eval.console.fields import LocalPath, Section, Texts, checked, texts
from eval.console.overrides import keep_texts, quoted
from eval.inputs.examples import WHOLE, Shard
from eval.inputs.protocol import Rules, Where
from eval.inputs.sources import source_class
from eval.keeping.store import NAME
from eval.scoring.metrics import Edit


def _said(shard: Shard) -> str | None:
    return None if shard == WHOLE else str(shard)


def _home(name: Any) -> Any:
    return str(Path(name).expanduser()) if isinstance(name, str) and name.startswith("~") else name


def _budgets(value: Any) -> Any:
    return tuple(dict.fromkeys(value)) if isinstance(value, list) else (value,)


def _some_budgets(value: Any) -> Any:
    return None if value is None else _budgets(value)


class Model(Section):
    """A model and how it is loaded; `name` alone has no default.

    prompt_limit: most tokens of a prompt, None for all positions that the answer leaves.
    """

    name: Annotated[str, BeforeValidator(_home)] = Field(min_length=1, description="a hub name or a local folder")
    title: str | None = Field(None, min_length=1, description="a name for tables, or null")
    label: str | None = Field(
        None, pattern=rf"^{NAME.pattern}\z", description="a name of letters, digits, '.', '+', '-' and '_'"
    )
    revision: str | None = Field(None, min_length=1, description="a branch, tag or commit of the hub, or null")
    dtype: Literal["auto", "float32", "float16", "bfloat16", "float64"] = "auto"
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:[0-9]+)?)\z", description="auto, cpu, cuda or cuda:N")
    device_map: str | None = Field(None, min_length=1, description="auto, to spread the model over all GPUs, or null")
    attention: Literal["sdpa", "flash_attention_2"] = "sdpa"
    prompt_limit: int | None = Field(None, ge=2, description="a whole number of tokens, at least 2, or null")
    chat: Where = "official"
    template_options: dict[str, Any] = Field({}, description="a mapping of names to values")


class Preset(Rules):
    """A preset's rules for prompts, answers and scores. What else it has, YAMLs of methods refer to."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(min_length=1, description="the preset's name")
    edit: Edit


class Chosen(Section):
    """A data source by its class, with the settings of that class beside."""

    model_config = ConfigDict(extra="allow")

    target: str = Field(alias="_target_", description="the import path of a class: see eval/inputs/sources")
    title: str | None = Field(None, min_length=1, description="a name for tables, or null")
    subsets: Texts | None = Field(None, description="a subset, a group or a list of them, or null for all there are")
    prompts: LocalPath | None = Field(None, description="a JSON file {subset: template}, or null")

    @property
    def own(self) -> dict[str, Any]:
        """The settings of the class."""
        return dict(self.model_extra or {})


class Record(Section):
    """What is stored beside the answers."""

    selections: bool = Field(False, description="true or false")


Budget = Annotated[int, Field(ge=1)]


class Settings(Section):
    """One run. A field that is a path has its `~` expanded."""

    model: Model = Field(description="settings of its own: model=NAME of conf/model, model.name=FOLDER")
    data: Chosen = Field(description="settings of its own: data=NAME of conf/data, data.path=FOLDER")
    preset: Preset = Field(description="settings of its own: preset=NAME of conf/preset")
    methods: dict[str, Any] = Field({}, description="one mapping a method: method=NAME, methods.NAME.FIELD=VALUE")
    method: dict[str, Any] = Field({}, description="the name of a method, or a list of names")
    cache: dict[str, Any] = Field({}, description="settings of its own: cache=NAME of conf/cache, cache.bits=4")
    budget: Annotated[tuple[Budget, ...], BeforeValidator(_budgets)] = Field(
        min_length=1, description="a whole number of tokens per head, at least 1, or a list of them"
    )
    budget_bytes: Annotated[tuple[Budget, ...] | None, BeforeValidator(_some_budgets)] = Field(
        None, min_length=1, description="a whole number of bytes, at least 1, a list of them, or null"
    )
    subset: Texts | None = Field(description="a subset, a group or a list of them, or null for all that the data has")
    limit: int | None = Field(ge=1, description="a whole number of examples, at least 1, or null")
    shard: Annotated[Shard, BeforeValidator(Shard.of), PlainSerializer(_said)] = Field(
        description="i/n with 0 <= i < n, such as 0/4, or null"
    )
    decode_rows: Literal["auto"] | Annotated[int, Field(ge=1)] = Field(
        description="a whole number of at least 1, or auto"
    )
    decode_graph: Literal["auto"] | bool = Field(description="true, false or auto")
    cost: bool = Field(description="true or false")
    inspect: int | None = Field(ge=1, description="a whole number of examples, at least 1, or null")
    results: LocalPath = Field(description="a folder, such as results=./results")
    record: Record = Field(description="settings of its own: record.selections=true")
    analysis: dict[str, Any] | None = Field(None, description="settings of its own: see conf/experiment")

    def of_data(self, **changes: Any) -> Settings:
        """The same run on other records: with other settings of its data source."""
        return self.model_copy(update={"data": self.data.model_copy(update=changes)})


def composed(words: Sequence[str]) -> Settings:
    """The settings that a command line stands for. Raises UserError, and Hydra's errors, for wrong ones."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", quoted(words), return_hydra_config=True)
    hydra = config.hydra
    with_hydra = OmegaConf.masked_copy(config, [str(name) for name in config if name != "hydra"])
    return _typed(with_hydra, hydra.overrides.task, hydra.runtime.choices)


def settings(config: DictConfig) -> Settings:
    """The settings that Hydra composed for this process's command line. Raises UserError for wrong ones."""
    own = HydraConfig.get()
    return _typed(config, own.overrides.task, own.runtime.choices)


def _typed(config: DictConfig, overrides: Sequence[str], choices: Mapping[str, Any]) -> Settings:
    content: Any = OmegaConf.to_container(config, resolve=True)
    keep_texts(content, overrides, texts(Settings))
    methods = content.get("methods")
    for fields in methods.values() if isinstance(methods, dict) else ():
        if isinstance(fields, dict):
            fields.pop("title", None)  # for tables, which read it in the YAML: no field of the class
    if isinstance(chosen := content.get("data"), dict) and isinstance(path := chosen.get("_target_"), str):
        kind = source_class(path)
        if isinstance(kind, type) and issubclass(kind, Section):
            keep_texts(content, overrides, texts(kind, "data."))
            _without_others(chosen, kind, overrides)
    if isinstance(model := content.get("model"), dict) and model.get("label") is None and model.get("name"):
        model["label"] = str(choices.get("model") or Path(str(model["name"])).name)
    return checked(Settings, content)


def _without_others(chosen: dict[str, Any], kind: type[Section], overrides: Sequence[str]) -> None:
    """Leave out what an experiment sets for its own data where the command line chose another source."""
    named = {word.lstrip("+").partition("=")[0] for word in overrides}
    known = {*kind.model_fields, *Chosen.model_fields, "_target_"}
    for path in (CONF / "data").glob("*.yaml"):
        for name in {*map(str, conf.read(path))} - known:
            if f"data.{name}" not in named:
                chosen.pop(name, None)
